/* Notices: the process whose command grants the key to a waiter notifies the waiter, which sleeps until then.
 *
 * Stands for:
 *   internal/core: outbox.go (notify, messageDue), listener.go (listenerReady, noticed), wait.go (waits, lookAhead),
 *     request.go (missedWake, noteWake, granted), past.go (unknownClaim, orphan)
 *   dsync/mongo: tail.go (open, follow, reopen, first), notice.go (grants, kept, Notify), acquire.go (claimRecord),
 *     address.go (withAddress)
 * Notices are sent after the reply, in the background. A claim's record has the address of its session, and a reply names the
 * granted claims that have one. A listener skips the notices that exist when it opens its first cursor. Each later cursor
 * continues after the last notice seen; if that notice is no longer there, the listener becomes ready again, and waiters request
 * again.
 * Abstracts from: sessions and time (the claims of dead processes are dropped at once) and late requests (internal/explore
 * covers both); weights (weights.pml), holders that yield (yield.pml), observers (observe.pml). Each claim has one notice of its
 * grant and one that wakes it. A notice is at its sender, or in the collection ahead of the listener's cursor.
 *
 * Checked in every state: a process that believes it holds the key is the holder in the store. And (LTL, weak fairness) a waiter
 * does not sleep forever:
 *   RELIABLE  no process dies, and no reply or notice is lost: even without the poll, in whatever order notices come, and even if
 *             the cursor breaks, is overrun, or is on a deposed member
 *   else      by the poll, whatever is lost
 *   REPEAT    each notice comes again and again, even long after its claim has ended
 */
#ifndef NP
#define NP 2
#endif
#ifndef NC
#define NC 2          /* claims of a process, one after the other */
#endif
#ifndef BREAKS
#define BREAKS 1      /* how often a cursor may break */
#endif
#ifndef LOST
#ifdef RELIABLE
#define LOST 0
#else
#define LOST 1        /* how many replies of requests to join are lost */
#endif
#endif
#ifndef DIES
#define DIES(p) ((p)==0)      /* between a release and the insert of its notice */
#endif
#ifndef CRASHES
#define CRASHES(p) ((p)==0)   /* at another time */
#endif
#define NCL (NP*NC)
#define C(p) ((p)*NC+ck[p]+1)
#define P(c) (((c)-1)/NC)
#define WAKE NCL      /* notice WAKE+c wakes c, notice c is of its grant */
byte h, q[NCL], ql;   /* the record */
byte he;              /* 1: the holder's claim has an end 2: which has come */
bit place[NCL+1];     /* the claim says where its session listens */
byte st[NP];          /* 0 idle 1 asks 2 sleeps 3 holds 4 releases 9 is dead, or done */
byte ck[NP];          /* the claim in use */
bit again[NP], got[NP]; /* reason to ask again; the grant was heard of */
bit need[NP];         /* the session is to listen */
byte ls[NP];          /* its listener: 0 none 1 open 2 ready 3 the cursor broke 4 and its place is lost 5 (planted) */
byte out[2*NCL+1];    /* a notice that its sender (counted from 1) has not sent yet */
bit in[2*NCL+1];      /* one that the listener's cursor has before it */
byte breaks, lost;
hidden byte i, j, g;

inline unline(c) { i=0; j=0;
  do :: i<ql -> if :: q[i]!=(c) -> q[j]=q[i]; j++ :: else fi; i++ :: else -> break od;
  i=j; do :: i<ql -> q[i]=0; i++ :: else -> break od; ql=j; i=0; j=0 }
/* g: whom the command granted, which its reply names if the claim has a place */
inline settle() { g=0;
  if :: h==0 && ql>0 -> h=q[0]; g=h; unline(h); if :: !place[g] -> g=0 :: else fi :: else fi }
inline check() { i=0;
  do :: i<NP -> if :: st[i]==3 -> assert(h==C(i)) :: else fi; i++ :: else -> break od; i=0 }
inline clean() {
  if :: he==2 || h!=0 && st[P(h)]==9 && he==0 -> h=0; he=0 :: else fi;
  i=0; j=0; do :: i<ql -> if :: st[P(q[i])]!=9 -> q[j]=q[i]; j++ :: else fi; i++ :: else -> break od;
  i=j; do :: i<ql -> q[i]=0; i++ :: else -> break od; ql=j; i=0; j=0 }
inline acquire(c) { clean(); i=0; do :: i<ql && q[i]!=(c) -> i++ :: else -> break od;
  if :: h!=(c) && i==ql ->
        q[ql]=c; ql++;
#ifdef BUG_PLACE_LATE   /* only of one that listens already */
        place[c]=(ls[P(c)]==2)
#else
        place[c]=1
#endif
     :: else fi; i=0; settle(); if :: g==(c) -> g=0 :: else fi; check() }
inline release(c) {
#ifdef BUG_FREES_KEY    /* for an unknown claim, frees the key in place of the claim */
  h=0; he=0;
#else
  if :: h==(c) -> h=0; he=0 :: else fi;
#endif
  unline(c); settle();
#ifdef BUG_BLIND        /* by a command whose reply does not name whom it granted */
  g=0;
#endif
  check() }
/* Release with Keep: the holder's claim gets an end, and the first in the queue is woken */
inline keep(c) { g=0; if :: h==(c) && he==0 -> he=1;
#ifndef BUG_NO_WAKE     /* the first waiter does not learn of the end that ReleaseAfter sets */
     if :: ql>0 && place[q[0]] -> g=WAKE+q[0] :: else fi
#endif
     :: else fi }

#ifdef RELIABLE
#define LOSES 0
#define DEATHS 0
#define POLLS 0
#else
#ifndef LOSES
#define LOSES 1       /* replies of releases, and notices */
#endif
#define DEATHS 1
#ifdef BUG_NOPOLL       /* with an insert that fails, or a process that dies before it */
#define POLLS 0
#else
#define POLLS 1
#endif
#endif
inline tell(p) { if :: t!=0 && out[t]==0 -> out[t]=p+1 :: else fi; t=0 }
inline die(p) { st[p]=9; t=0; again[p]=0; got[p]=0; i=1; do :: i<=2*NCL -> if :: out[i]==p+1 -> out[i]=0 :: else fi; i++ :: else -> break od; i=0 }
inline over(p) { ck[p]=ck[p]+1; st[p]=0; again[p]=0; got[p]=0; ends=0 }
#ifdef BUG_REUSE        /* a claim's id is used twice */
#define NEXT(p) st[p]=0; again[p]=0; got[p]=0; ends=0; used++
#define MORE (used<NC)
#else
#define NEXT(p) over(p)
#define MORE (ck[p]<NC)
#endif

/* A process. t: whom its last command granted or woke, until the reply is there. */
proctype client(byte p) { byte t, used; bit held, ends;
  do
  :: MORE ->
ask: skip; d_step { st[p]=1;
#ifndef BUG_FORGETS     /* forgets a notice that comes during a request */
       again[p]=0
#endif
     }
     d_step { acquire(C(p)); t=g; g=0; held=(h==C(p)); ends=(he>0) }
     if
     :: d_step { tell(p);                                    /* the reply */
#ifdef BUG_FORGETS
          again[p]=0;
#endif
          if :: held || got[p] -> st[p]=3; check() :: else -> st[p]=2; need[p]=1 fi }
     :: d_step { lost<LOST -> lost++; t=0 } goto ask         /* none: once more */
     :: d_step { DEATHS && CRASHES(p) -> die(p) } goto end
     fi;
     held=0;
     if
     :: d_step { st[p]==2 && got[p] -> st[p]=3; check() }
     :: st[p]==2 && again[p] -> goto ask
     :: st[p]==2 && POLLS -> goto ask
     :: st[p]==2 && ends && he==2 -> goto ask                /* its timer, of the end that it was told of */
#ifdef CANCEL
     :: st[p]==2 && !got[p] && ck[p]+1<NC -> skip
#endif
     :: st[p]==3 -> skip
     fi;
     if
     :: d_step { DEATHS && CRASHES(p) -> die(p) } goto end
     :: d_step { st[p]=4; got[p]=0;
#ifdef BUG_EARLY        /* tells the next before it is let in */
          t=(ql>0 && h==C(p) -> q[0] : 0); tell(p)
#endif
        }
     fi;
     if
#ifdef KEEP
     :: d_step { p==0 && ck[p]==0 -> keep(C(p)); t=g; g=0 }
#endif
     :: d_step { release(C(p)); t=g; g=0 }
     fi;
     if
     :: d_step { tell(p); NEXT(p) }
     :: d_step { LOSES -> t=0; NEXT(p) }                     /* no reply; the release that is sent again names nobody */
     :: d_step { DEATHS && DIES(p) -> die(p) } goto end      /* before the insert */
     fi
  :: else -> break
  od;
end: skip }

/* The inserts of all. */
inline send(n) { in[n]=1; out[n]=0 }
#define SENDS(n) \
  :: d_step { out[n]!=0 -> send(n) } \
  :: d_step { LOSES && out[n]!=0 -> out[n]=0 }
proctype senders() { end: do
  SENDS(1) SENDS(2) SENDS(WAKE+1) SENDS(WAKE+2)
#if NCL>2
  SENDS(3) SENDS(WAKE+3)
#endif
#if NCL>3
  SENDS(4) SENDS(WAKE+4)
#endif
  od }

/* A listener: of process p, whose claims are from p*NC+1. */
inline drop(p) {
#ifndef REPEAT
  i=p*NC+1; do :: i<=p*NC+NC -> in[i]=0; in[WAKE+i]=0; i++ :: else -> break od; i=0
#else
  skip
#endif
}
inline hear(p, c) {
#ifndef REPEAT
  in[c]=0;
#endif
#ifdef BUG_BY_KEY       /* the notice names the key alone */
  if :: st[p]==1 || st[p]==2 -> got[p]=1; again[p]=1 :: else fi
#else
  if :: c==C(p) && (st[p]==1 || st[p]==2) -> got[p]=1; again[p]=1
     :: c==C(p) && (st[p]==3 || st[p]==4) -> skip
     :: else -> release(c); if :: g!=0 -> out[g]=p+1; g=0 :: else fi  /* nobody here knows it */
  fi
#endif
}
inline wake(p, c) {
#ifndef REPEAT
  in[WAKE+c]=0;
#endif
  if :: c==C(p) && (st[p]==1 || st[p]==2) -> again[p]=1 :: else fi }
inline ready(p) { ls[p]=2;
#ifndef BUG_NO_ASK      /* nobody requests again when the listener is ready */
  if :: st[p]==1 || st[p]==2 -> again[p]=1 :: else fi
#endif
}
#define HEARS(k) \
  :: d_step { k<NC && ls[p]==2 && in[p*NC+k+1] && st[p]!=9 -> hear(p, (p*NC+k+1)) } \
  :: d_step { k<NC && ls[p]==2 && in[WAKE+p*NC+k+1] && st[p]!=9 -> wake(p, (p*NC+k+1)) }
proctype listener(byte p) { end: do
#ifdef BUG_READY_FIRST  /* reports ready before it is open */
  :: d_step { ls[p]==0 && need[p] -> ready(p); ls[p]=5 }
  :: d_step { ls[p]==5 -> drop(p); ls[p]=2 }
#else
  :: d_step { ls[p]==0 && need[p] -> drop(p); ls[p]=1 }
#endif
  :: d_step { ls[p]==1 -> ready(p) }
  HEARS(0) HEARS(1)
  :: d_step { ls[p]==2 && st[p]==0 -> ls[p]=0; need[p]=0 }                 /* nobody waits here */
  :: d_step { ls[p]==2 && breaks<BREAKS -> breaks++; ls[p]=3 }            /* broken, or on a member that hears nothing */
  :: d_step { ls[p]==2 && breaks<BREAKS -> breaks++; drop(p); ls[p]=4 }   /* overrun */
  :: d_step { ls[p]==2 && breaks<BREAKS -> breaks++; ls[p]=0 }            /* given up by the store, opened anew by the session */
#ifndef BUG_DEAF        /* a cursor on a deposed member stays there */
  :: d_step { ls[p]==3 ->
#ifdef BUG_REOPENS      /* a cursor that is opened again starts from that moment */
       drop(p);
#endif
       ls[p]=2 }
#endif
  :: d_step { ls[p]==4 ->
#ifdef BUG_OVERRUN      /* notices were overwritten, and nobody requests again */
       ls[p]=2
#else
       ready(p)
#endif
     }
  od }
#ifdef KEEP
proctype clock() { end: do :: d_step { he==1 -> he=2 } od }
#endif
init { atomic {
  run senders();
  i=0; do :: i<NP -> run client(i); run listener(i); i++ :: else -> break od; i=0;
#ifdef KEEP
  run clock();
#endif
} }
#ifdef LIVE
ltl served { [] ((st[LIVE]==1 || st[LIVE]==2) -> <> (st[LIVE]!=1 && st[LIVE]!=2)) }
#endif
