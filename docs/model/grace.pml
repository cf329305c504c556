/* When a holder is notified that its hold ends, and when others get the key: loss, Break (Revoke), Close, ReleaseAfter (Keep).
 *
 * Stands for:
 *   internal/core: session.go (Deadline, lose, revoked), hold.go (windDown, loseHold, releaseAsSaid),
 *     release.go (release, sendRelease, releasePlainly), closing.go (hurry, closeDue)
 *   dsync/mongo: shapes.go (alive), shapes_edit.go (keeping)
 *   internal/model: edit.go (keep)
 * A hold that winds down is released when its holder is done or the grace is over. When Close's context ends, Close keeps the
 * claim for the rest of the grace, and does not unregister the session unless the store has confirmed that. A hold with an end
 * lasts until then, even if its session expires, and Keep never moves that end to a later time.
 * Abstracts from: the queue and several processes (weights.pml and internal/explore cover them), freezes and fail-overs
 * (failover.pml), tokens. One process holds the key at the start. The other waits, and requests, expires and revokes whenever it
 * can. Any request that was ever sent may run at any later time, and again. The store and the holder share one clock.
 *
 * Checked in every state: when the other process has the key, the holder's work has ended, because the holder was done or the
 * grace after Lost is over. What ReleaseAfter kept, and the store confirmed, is not granted before its time unless it is
 * revoked, and no late or repeated request moves its end to a later time.
 */
#ifndef TTL
#define TTL 5
#endif
#define M 0            /* clocks are alike here; what the margin pays for is in failover.pml */
#ifndef GR
#define GR 1
#endif
#ifndef D
#define D 2          /* ReleaseAfter(D) */
#endif
#define NONE 15
#ifdef BUG_NO_GRACE
#define LEASE (TTL-M)
#else
#define LEASE (TTL-M-GR)
#endif
/* the store */
bit dead; byte age;          /* of the holder's session */
byte h=1, he=NONE;           /* 1: the holder's claim, which ends in he ticks; 2: the other's */
bit rev;                     /* a revocation stands */
/* the holder's process */
byte st=1;                   /* 1 held 2 told 3 spent 4 gone */
bit work=1;                  /* the user's work goes on */
bit drain, closing, kept, acked, gone;
byte dl=LEASE, gt;           /* ticks to the deadline; since Lost closed */
byte hb, hba; bit hbr;       /* heartbeat: 0 idle 1 sent 2 answered 3 answered: dead */
byte ka;                     /* ticks since ReleaseAfter was called */
bit released, unreg, hbsent; byte keep; /* ever sent: Release, Unregister, a heartbeat, Release with Keep */
byte sk;                     /* ticks since the store executed ReleaseAfter */
#define LIVE (st==1||st==2||(st==3&&!gone))

inline check() { assert(h!=2 || !work); assert(h!=2 || !(kept&&acked) || ka>=D || rev) }
inline settle() { if :: h==0 -> h=2; he=NONE :: else fi; check() }
inline x_rel() { if :: h==1 -> h=0; he=NONE; settle() :: else fi }
inline x_keep(k) {
#ifdef BUG_KEEP_LATER
  if :: h==1 -> he=k :: else fi;
#else
  if :: h==1 && he>(k) -> he=k :: else fi;
#endif
  assert(he==NONE || !kept || he+sk<=D)
}
#ifdef BUG_KEEP_DIES
#define DROPPED (dead || he==0)
#else
#define DROPPED (he==NONE -> dead : he==0)
#endif
inline x_acq() { if :: h==1 && DROPPED -> h=0; he=NONE :: else fi; settle() }
inline lose() { gone=1; hb=0; hba=0; hbr=0; dl=0;
  if :: st==1||st==2 -> st=4 :: else fi;
#ifdef BUG_LOST_UNREGISTERS
  unreg=1;
#endif
#ifdef BUG_LOST_RELEASES
  released=1;
#endif
}
inline tell() { st=2;
#ifdef BUG_DRAIN_NOW
  if :: drain -> st=3; released=1 :: else fi
#endif
}
inline revoked() {
  if :: st==1 ->
#ifdef BUG_REVOKE_UNTOLD
        released=1
#else
        drain=1; tell()
#endif
     :: st==3 && kept -> released=1       /* orphan: what it left behind */
     :: else fi }
#ifdef BUG_REPLY_TIME
#define LEFT LEASE
#else
#define LEFT (hba<LEASE -> LEASE-hba : 0)
#endif
#define URGENT (LIVE && !gone && dl==0 || (st==2 && drain && gt>=GR) || (st==2 && closing && gt>=GR))
init {
 do
 /* heartbeats */
 :: d_step { !gone && !closing && hb==0 && dl>0 -> hb=1; hba=0; hbsent=1 }
 :: d_step { hb==1 -> if :: dead -> hb=3 :: else -> age=0; hb=2; hbr=rev fi }
 :: d_step { hb==2 && !gone && dl>0 -> if :: LEFT>dl -> dl=LEFT :: else fi; if :: hbr -> revoked() :: else fi; hb=0; hba=0; hbr=0 }
 :: d_step { hb==3 && !gone -> lose() }
 :: d_step { hb==1||hb==2 -> hb=0; hba=0; hbr=0 }                      /* no answer */
 :: d_step { !gone && dl==0 -> lose() }
 :: d_step { rev && !gone && dl>0 && !closing -> revoked() }           /* by the notice */
 /* the user */
 :: d_step { st==1 && dl>0 && !closing -> work=0; st=3; released=1 }   /* Unlock */
 :: d_step { st==1 && dl>0 && !closing && keep==0 -> work=0; st=3; kept=1; keep=D; ka=0 } /* ReleaseAfter */
 :: d_step { st==2 && work -> work=0; st=3; released=1 }               /* done within the grace */
 :: d_step { st==4 && work -> work=0 }
 :: d_step { st==2 && drain && gt>=GR -> st=3; released=1 }            /* the grace is over */
 /* Close: tells, waits for the holder, the grace or ctx, and keeps the claim for the rest of the grace */
 :: d_step { (st==1||st==2) && !closing && !gone && dl>0 -> closing=1; if :: st==1 -> tell() :: else fi }
 :: d_step { closing && st==2 && !drain && !gone -> st=3;
#ifdef BUG_CLOSE_PLAIN
      released=1
#else
      if :: gt<GR -> keep=GR-gt :: else -> released=1 fi
#endif
    }
 :: d_step { closing && st==3 && !gone && keep>0 && he==NONE && h==1 && !unreg ->  /* no answer: left to lapse */
#ifdef BUG_CLOSE_UNREGISTERS
      unreg=1;
#endif
      gone=1; hb=0; hba=0; dl=0 }
 :: d_step { closing && st==3 && !gone && (he!=NONE||h!=1) && !unreg -> unreg=1; gone=1; hb=0; hba=0; dl=0 }
 /* requests that were sent run whenever */
 :: d_step { released && h==1 -> x_rel() }
 :: d_step { keep>0 && h==1 && he>keep -> x_keep(keep) }
#ifdef BUG_KEEP_LATER
 :: d_step { keep>0 && h==1 -> x_keep(keep) }
#endif
 :: d_step { he!=NONE && kept && h==1 && !acked && !gone -> acked=1 }             /* ReleaseAfter returns nil */
 :: d_step { kept && keep>0 && ka>=D && !released && !gone -> released=1 }  /* once more when its attempts are void */
#ifdef BUG_KEEP_AGAIN
 :: d_step { kept && keep>0 && !released && !gone -> released=1 }
#endif
 :: d_step { hbsent && !dead && age>0 -> age=0 }
 :: d_step { unreg && !dead -> dead=1; age=0 }
 /* the other: breaks, expires, asks */
 :: d_step { !rev && h==1 && !dead -> rev=1 }
 :: d_step { !dead && age>=TTL -> dead=1; age=0 }
 :: d_step { h==1 && DROPPED -> x_acq() }
 /* a tick */
 :: d_step { !URGENT ->
      if :: !gone && dl>0 -> dl=dl-1 :: else fi;
      if :: hb!=0 && hba<TTL -> hba=hba+1 :: else fi;
      if :: !dead && age<TTL -> age=age+1 :: else fi;
      if :: st!=1 && gt<GR -> gt=gt+1; if :: gt==GR -> work=0 :: else fi :: else fi; /* heeded within the grace */
      if :: kept && ka<D -> ka=ka+1 :: else fi;
      if :: he!=NONE && he>0 -> he=he-1; if :: kept && sk<D -> sk=sk+1 :: else fi :: else fi
    }
 od }
