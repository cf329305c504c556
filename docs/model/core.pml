/* Sessions, and one key of limit 1: safety.
 *
 * Stands for: internal/engine: lease.go (register, keep, lose), acquire.go, release.go, expiry.go, notices.go
 * hear (a claim that a notice names and nobody here knows is released); dsync/mongo/session.go Register, Expire, Unregister,
 * heartbeat.go; shapes.go clean and release, shapes_edit.go joining, shapes_settle.go settle for limit 1; shapes_short.go,
 * the short commands, which here anybody may send at any time; sweep.go idleSessions (SWEEP, TOMBDEL).
 * Abstracts from: notAfter (here what was sent may join forever; live.pml), weights and the line's order (weights.pml),
 * tokens (token.pml), the grace (grace.pml; here Margin stands for both), fail-overs (failover.pml). An identity that
 * is lost may be unregistered here at any time: the code only does that in Close.
 * Crashes, freezes; requests late, lost or repeated with UNBOUNDED delay: one that was ever sent may run again at any
 * later time. No state is kept for that; "ever sent" follows from the client's counters. Time is relative (ages and
 * countdowns), so there is no horizon.
 *
 * Checked in every state: a process that runs and believes it holds is the holder in the store (S1), and one whose
 * place in the queue was acknowledged is in the queue, or holds (S3).
 */
#ifndef NP
#define NP 2
#endif
#ifndef NS
#define NS 2
#endif
#ifndef NC
#define NC 2
#endif
#ifndef TTL
#define TTL 3
#endif
#ifndef M
#define M 1
#endif
#ifndef NSL
#define NSL(p) NS
#endif
#ifndef NCX
#define NCX(p) NC
#endif
#define NSS (NP*NS)
#define NCL (NP*NC)
#define BIT(x) (1<<(x))

byte st[NSS];        /* 0 absent, 1 live, 2 tombstone */
byte age[NSS];       /* server now - at, saturating at TTL */
byte h;              /* holder claim or 0 */
byte q[NCL]; byte ql;
byte cs[NCL+1];      /* session of a claim */
int  nt;             /* claims with a notice of their grant, which may come at any later time, and again */
int  tryc;           /* claims that are tries */

byte rn[NP];        /* 0 killed 1 running 2 frozen */
byte ss[NP];         /* 0 no session 1 registering 2 active */
byte si[NP];         /* identity index */
byte dl[NP];         /* ticks to the local deadline */
byte hb[NP], hba[NP];/* heartbeat/register request: 0 idle 1 sent 2 ok 3 dead ; age of send */
byte op[NP];         /* 0 idle 1 acq sent 2 granted(reply under way) 3 not granted 4 waiting(acked) 5 HELD 6 rel sent 9 killed */
byte ck[NP];         /* claim index */
int  kn[NP];         /* sessions known to be dead */
hidden byte i, j;

#define S(p) ((p)*NS+si[p])
#define C(p) ((p)*NC+ck[p]+1)
#define OWNS(c) (cs[c])
#define PS(s) ((s)/NS)
#define PC(c) (((c)-1)/NC)
#ifdef BUG_NOTIMER
#define RUN(p) (rn[p]==1)
#else
#define RUN(p) (rn[p]==1 && !(ss[p]==2 && dl[p]==0))
#endif
#define REGSENT(s) ((s)%NS < si[PS(s)] || ((s)%NS==si[PS(s)] && ss[PS(s)]!=0))
#define CSENT(c) (((c)-1)%NC < ck[PC(c)] || (((c)-1)%NC==ck[PC(c)] && op[PC(c)]!=0))

/* every running process that believes it holds is the holder in the store (S1,S3,S5);
 * every running process with an acknowledged place in the queue is in the queue or holds (S3) */
inline check() {
  i=0;
  do :: i<NP ->
        if :: (rn[i]==1 && op[i]==5) -> assert(h==C(i)) /* S1 */ :: else fi;
        if :: (rn[i]==1 && op[i]==4 && ss[i]==2) ->
              j=0; do :: (j<ql && q[j]!=C(i)) -> j++ :: else -> break od;
              assert(h==C(i) || j<ql) /* S3 */ :: else fi;
        i++
     :: else -> break od; i=0; j=0
}
inline qremove(c) {
  i=0; j=0;
  do :: i<ql -> if :: q[i]!=(c) -> q[j]=q[i]; j++ :: else fi; i++ :: else -> break od;
  i=j; do :: i<ql -> q[i]=0; i++ :: else -> break od; ql=j
}
inline first() { /* grants it the key */
  h=q[0]; nt=nt|BIT(h); i=0;
  do :: i+1<ql -> q[i]=q[i+1]; i++ :: else -> break od; ql--; q[ql]=0
}
inline settle() {
  if :: (h==0 && ql>0) -> first() :: else fi
}
inline clean(D) {
  if :: (h!=0 && ((D)>>cs[h])&1) -> h=0 :: else fi;
  i=0; j=0;
  do :: i<ql -> if :: (((D)>>cs[q[i]])&1) -> skip :: else -> q[j]=q[i]; j++ fi; i++ :: else -> break od;
  i=j; do :: i<ql -> q[i]=0; i++ :: else -> break od; ql=j
}
inline x_acq(c,D) {
  clean(D);
  i=0; do :: (i<ql && q[i]!=(c)) -> i++ :: else -> break od;
  if :: (h!=(c) && i==ql) -> q[ql]=c; ql++ :: else fi;
  settle();
  if :: ((tryc>>(c))&1) -> qremove(c) :: else fi;
  check()
}
inline x_rel(c) {
#ifdef BUG_RELUNCOND
  h=0; qremove(c);
#else
  if :: h==(c) -> h=0 :: else fi; qremove(c);
#endif
  settle(); check()
}
/* The short commands: their conditions, and what becomes of the key where these are met. */
#ifdef BUG_SHORT_HELD
#define QUIET (ql==0)
#else
#define QUIET (h==0 && ql==0)
#endif
#ifdef BUG_SHORT_KEY
#define MINE(c) (h!=0)
#else
#define MINE(c) (h==(c))
#endif
inline x_quiet(c) { h=c; nt=nt|BIT(c); check() }
inline x_pass() { if :: ql>0 -> first() :: else -> h=0 fi; check() }
inline x_reg(s) { /* $set at: leaves dead alone */
#ifdef BUG_SAMEID
  st[s]=1; age[s]=0
#else
  if :: st[s]!=2 -> st[s]=1; age[s]=0 :: else fi
#endif
}
inline x_hb(s) {
  if :: st[s]==1 -> age[s]=0 :: else fi
}
inline lost(p) { /* every Lost closes; new identity; (Unregister is sent: may run any time from now on) */
#ifdef BUG_LATEGRANT
  if :: (op[p]==2) -> skip :: else ->
#endif
  if :: op[p]!=0 -> op[p]=0; ck[p]=ck[p]+1 :: else fi;
#ifdef BUG_LATEGRANT
  fi;
#endif
  kn[p]=kn[p]|BIT(S(p));
  ss[p]=0; hb[p]=0; hba[p]=0; dl[p]=0;
#ifdef BUG_SAMEID
  kn[p]=0;
#else
  si[p]=si[p]+1;
#endif
}

#ifdef SWEEPK
#define LEARN(p,s) :: d_step{ RUN(p) && s!=S(p) && ss[p]==2 && !((kn[p]>>s)&1) && (st[s]==1&&age[s]>=TTL || st[s]==2 || (st[s]==0 && (s)%NS<si[PS(s)])) -> st[s]=2; age[s]=0; kn[p]=kn[p]|BIT(s) }
#else
#define LEARN(p,s)
#endif
#ifdef BUG_REGDEAD
#define REGDEAD 2
#else
#define REGDEAD 3
#endif
#ifdef BUG_EARLY
#define CANCLAIM(p) (ss[p]>=1)
#define CANHOLD(p) (ss[p]==2)
#else
#define CANCLAIM(p) (ss[p]==2)
#define CANHOLD(p) (ss[p]==2)
#endif
#ifdef BUG_REPLYTIME
#define NEWDL(p) (TTL-M)
#else
#define NEWDL(p) (hba[p]<TTL-M -> TTL-M-hba[p] : 0)
#endif
#ifdef BUG_EXPIREUNCOND
#define LAPSED(s) (1)
#else
#define LAPSED(s) (st[s]!=1 || age[s]>=TTL)
#endif

#define CLIENT(p) \
 /* register */ \
 :: d_step{ RUN(p) && ss[p]==0 && si[p]<NSL(p) && ck[p]<NCX(p) -> ss[p]=1; hb[p]=1; hba[p]=0 } \
 :: d_step{ rn[p]!=0 && ss[p]==1 && hb[p]==1 -> hb[p]=(st[S(p)]==2 -> REGDEAD : 2); x_reg(S(p)) } \
 :: d_step{ RUN(p) && ss[p]==1 && hb[p]==2 -> if :: hba[p]<TTL-M -> ss[p]=2; dl[p]=NEWDL(p); hb[p]=0; hba[p]=0 :: else -> lost(p) fi } \
 :: d_step{ RUN(p) && ss[p]==1 && hb[p]==3 -> lost(p) } \
 :: d_step{ RUN(p) && ss[p]==1 && hb[p]>=1 && hb[p]<=2 -> lost(p) } /* time-out: another id */ \
 /* heartbeat */ \
 :: d_step{ RUN(p) && ss[p]==2 && hb[p]==0 -> hb[p]=1; hba[p]=0 } \
 :: d_step{ rn[p]!=0 && ss[p]==2 && hb[p]==1 -> hb[p]=(HBOK(S(p)) -> 2 : 3); x_hb(S(p)) } \
 :: d_step{ RUN(p) && ss[p]==2 && hb[p]==2 -> if :: NEWDL(p)>dl[p] -> dl[p]=NEWDL(p) :: else fi; hb[p]=0; hba[p]=0 } \
 :: d_step{ RUN(p) && ss[p]==2 && hb[p]==3 -> lost(p) } \
 :: d_step{ RUN(p) && ss[p]==2 && (hb[p]==1||hb[p]==2) -> hb[p]=0; hba[p]=0 } \
 :: d_step{ TIMER(p) -> lost(p) } \
 /* user */ \
 :: d_step{ RUN(p) && CANCLAIM(p) && op[p]==0 && ck[p]<NCX(p) -> cs[C(p)]=S(p); op[p]=1 } \
 :: d_step{ RUN(p) && CANCLAIM(p) && op[p]==0 && ck[p]<NCX(p) && TRYABLE(p) -> cs[C(p)]=S(p); op[p]=1; tryc=tryc|BIT(C(p)) } \
 :: d_step{ rn[p]!=0 && op[p]==1 -> x_acq(C(p),kn[p]); op[p]=(h==C(p) -> 2 : 3) } \
 :: d_step{ rn[p]!=0 && op[p]==1 && QUIET -> x_quiet(C(p)); op[p]=2 } /* else the pipeline follows */ \
 :: d_step{ RUN(p) && CANHOLD(p) && op[p]==2 -> op[p]=5; check() } \
 :: d_step{ RUN(p) && op[p]==3 && !((tryc>>C(p))&1) -> op[p]=4; check() } \
 :: d_step{ RUN(p) && op[p]==3 && ((tryc>>C(p))&1) -> op[p]=0; ck[p]=ck[p]+1 } \
 :: d_step{ RUN(p) && op[p]>=2 && op[p]<=3 -> op[p]=1 } /* reply lost: repeat, same id */ \
 :: d_step{ RUN(p) && op[p]>=1 && op[p]<=3 -> op[p]=6 } /* give up: Release */ \
 :: d_step{ RUN(p) && op[p]==4 -> op[p]=1 } \
 :: d_step{ RUN(p) && op[p]==4 -> op[p]=6 } \
 :: d_step{ RUN(p) && CANHOLD(p) && HEARS(p) && ((nt>>C(p))&1) -> op[p]=5; check() } \
 :: d_step{ RUN(p) && op[p]==5 -> RELEASING(p) } \
 REVKREL(p) \
 :: d_step{ RUN(p) && op[p]==6 -> op[p]=0; NEXTCLAIM(p) } /* answered, or abandoned; executes by LATEC whenever */ \
 /* expire: by whom it may concern */ \
 :: d_step{ RUN(p) && ss[p]==2 && h!=0 && cs[h]!=S(p) && LAPSED(cs[h]) && !((kn[p]>>cs[h])&1) -> EXPIREX(cs[h]); kn[p]=kn[p]|BIT(cs[h]) } \
 :: d_step{ RUN(p) && ss[p]==2 && ql>0 && cs[q[0]]!=S(p) && LAPSED(cs[q[0]]) && !((kn[p]>>cs[q[0]])&1) -> EXPIREX(cs[q[0]]); kn[p]=kn[p]|BIT(cs[q[0]]) } \
 :: d_step{ RUN(p) && ss[p]==2 && ql>1 && cs[q[1]]!=S(p) && LAPSED(cs[q[1]]) && !((kn[p]>>cs[q[1]])&1) -> EXPIREX(cs[q[1]]); kn[p]=kn[p]|BIT(cs[q[1]]) } \
 KILLS(p) FREEZES(p)

#define EXPIREX(s) st[s]=2; age[s]=0
#define HBOK(s) (st[s]==1)
#ifdef BUG_NOTIMER
#define TIMER(p) (rn[p]==1 && ss[p]==2 && dl[p]==0 && hb[p]!=1)
#else
#define TIMER(p) (rn[p]==1 && ss[p]==2 && dl[p]==0)
#endif
#ifdef BUG_REVOKE
#define REVKREL(p) :: d_step{ rn[p]!=0 && op[p]==5 -> x_rel(C(p)) }
#else
#define REVKREL(p)
#endif
#ifdef BUG_REUSECLAIM
#define NEXTCLAIM(p) skip
#else
#define NEXTCLAIM(p) ck[p]=ck[p]+1
#endif
#define HEARS(p) (op[p]>=1 && op[p]<=4)
#define RELEASING(p) op[p]=6
#ifndef NOKILL
#define KILLS(p) :: d_step{ rn[p]==1 && (ss[p]!=0) && KILLABLE(p) -> rn[p]=0; hb[p]=0; hba[p]=0; dl[p]=0; kn[p]=0; if :: op[p]!=0 -> op[p]=9 :: else fi; ss[p]=1 }
#else
#define KILLS(p)
#endif
#ifndef TRYABLE
#define TRYABLE(p) (p==1)
#endif
#ifndef KILLABLE
#define KILLABLE(p) 1
#endif
#ifndef NOFREEZE
#define FREEZES(p) :: d_step{ rn[p]==1 && FREEZABLE(p) && ss[p]==2 -> rn[p]=2 } \
   :: d_step{ rn[p]==2 -> rn[p]=1; if :: (ss[p]==2 && dl[p]==0) -> lost(p) :: else fi; check() }
#else
#define FREEZES(p)
#endif
#ifndef FREEZABLE
#define FREEZABLE(p) 1
#endif

#define LATES(s) \
 LEARN(0,s) LEARN(1,s) \
 :: d_step{ REGSENT(s) && st[s]!=2 && (st[s]==0 || age[s]>0) -> x_reg(s) } \
 :: d_step{ REGSENT(s) && st[s]!=0 && !(st[s]==1 && age[s]==0) -> x_hb(s) } \
 :: d_step{ UNREGSENT(s) && st[s]==1 -> st[s]=2; age[s]=0 } \
 :: d_step{ UNREGSENT(s) && st[s]==1 -> st[s]=0; age[s]=0 } \
 SWEEPS(s) TOMBS(s)
#ifdef SWEEP
#define SWEEPS(s) :: d_step{ st[s]==1 && age[s]>=TTL -> st[s]=0; age[s]=0 }
#else
#define SWEEPS(s)
#endif
#ifdef TOMBDEL
#define TOMBS(s) :: d_step{ st[s]==2 -> st[s]=0; age[s]=0 }
#else
#define TOMBS(s)
#endif
#ifdef BUG_UNREGFIRST
#define UNREGSENT(s) (REGSENT(s))
#else
#define UNREGSENT(s) ((s)%NS < si[PS(s)])
#endif
#define LATEC(c) \
 :: d_step{ CSENT(c) && (h!=(c)) -> x_acq(c,0) } \
 :: d_step{ CSENT(c) -> x_acq(c,kn[PC(c)]) } \
 :: d_step{ RELSENT(c) -> x_rel(c) } \
 :: d_step{ CSENT(c) && QUIET -> x_quiet(c) } \
 :: d_step{ RELSENT(c) && MINE(c) -> x_pass() }
#define RELSENT(c) (((c)-1)%NC < ck[PC(c)] || (((c)-1)%NC==ck[PC(c)] && op[PC(c)]==6) || REUSED(c))
#ifdef BUG_REUSECLAIM
#define REUSED(c) (((nt>>(c))&1)!=0)
#else
#define REUSED(c) 0
#endif

#ifdef BUG_NOTIMER
#define URGENT(p) (rn[p]==1 && ss[p]==2 && dl[p]==0 && hb[p]!=1)
#else
#define URGENT(p) (rn[p]==1 && ss[p]==2 && dl[p]==0)
#endif
#if NP>2
#define NOURGENT (!URGENT(0) && !URGENT(1) && !URGENT(2))
#else
#define NOURGENT (!URGENT(0) && !URGENT(1))
#endif
init {
  d_step { i=0; do :: i<NP -> rn[i]=1; i++ :: else -> break od; i=0 }
  do
  CLIENT(0)
  CLIENT(1)
#if NP>2
  CLIENT(2)
#endif
  LATES(0)
  LATES(1)
#if NSS>2
  LATES(2)
#endif
#if NSS>3
  LATES(3)
#endif
  LATEC(1)
  LATEC(2)
#if NCL>2
  LATEC(3)
#endif
#if NCL>3
  LATEC(4)
#endif
  /* tick */
  :: d_step { NOURGENT -> i=0;
     do :: i<NP ->
           if :: dl[i]>0 -> dl[i]=dl[i]-1 :: else fi;
           if :: hb[i]!=0 && hba[i]<TTL -> hba[i]=hba[i]+1 :: else fi; i++
        :: else -> break od;
     i=0; do :: i<NSS -> if :: st[i]==1 && age[i]<TTL -> age[i]=age[i]+1 :: else fi; i++ :: else -> break od; i=0 }
  od
}
