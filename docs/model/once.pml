/* Once: exactly one run succeeds, forever.
 *
 * Stands for: dsync/once.go DoValue, internal/engine/release.go Unlock (of a hold that was told or lost, Seal does not
 * count), dsync/mongo/shapes_edit.go sealing (only of one that holds; the first seal stays; the line is emptied) and
 * joining (nothing joins a sealed key), shapes_short.go. That a short Release does not look for a seal is right: nobody holds
 * what is sealed.
 * Abstracts from: time. A session may be lost and expired at any moment (its process was told, core.pml); it goes on with
 * a second claim. Requests to seal and to release run whenever they were sent, and again.
 *
 * Checked: the one that seals holds the key; the seal never changes; a run that returned success is the one whose
 * result is sealed, and no two runs do; after the seal nobody is granted the key. And whoever asks gets an end (LTL): a run of its own, or the result.
 */
#define NP 2
#define NC 2
#define NCL (NP*NC)
byte h, q[NCL], ql, done;        /* claims are 1..NCL; done: the claim that sealed */
byte st[NP];                     /* 0 idle 1 asks 2 runs 3 seals 4 done 5 lost */
byte ck[NP], okc;                /* the claim in use; the claim whose Do returned success */
bit sent[NCL+1], rel[NCL+1], gone[NCL+1]; /* a seal was sent; a release was; its session is dead */
hidden byte i, j;
#define C(p) ((p)*NC+ck[p]+1)
inline unline(x) { i=0; j=0; do :: i<ql -> if :: q[i]!=(x) -> q[j]=q[i]; j++ :: else fi; i++ :: else -> break od;
  i=j; do :: i<ql -> q[i]=0; i++ :: else -> break od; ql=j; i=0; j=0 }
inline first() { assert(done==0);
  h=q[0]; i=0; do :: i+1<ql -> q[i]=q[i+1]; i++ :: else -> break od; ql--; q[ql]=0; i=0 }
inline settle() { if :: h==0 && ql>0 -> first() :: else fi }
inline clean() { if :: h!=0 && gone[h] -> h=0 :: else fi;
  i=0; j=0; do :: i<ql -> if :: gone[q[i]] -> skip :: else -> q[j]=q[i]; j++ fi; i++ :: else -> break od;
  i=j; do :: i<ql -> q[i]=0; i++ :: else -> break od; ql=j; i=0; j=0 }
inline acquire(x) { clean(); i=0; do :: (i<ql && q[i]!=(x)) -> i++ :: else -> break od;
#ifdef BUG_JOINS
  if :: h!=(x) && i==ql -> q[ql]=x; ql++ :: else fi;
#else
  if :: h!=(x) && i==ql && done==0 -> q[ql]=x; ql++ :: else fi;
#endif
  i=0; settle() }
inline seal(x) {
#ifdef BUG_ANYONE
  if :: done==0 ->
#elif defined(BUG_AGAIN)
  if :: h==(x) || done!=0 -> h=x;
#else
  if :: h==(x) && done==0 ->
#endif
     assert(h==(x) || done==(x)); /* of the one that holds */
     done=x;
#ifndef BUG_LINE
     i=0; do :: i<ql -> q[i]=0; i++ :: else -> break od; ql=0; i=0;
#endif
     assert(okc==0 || okc==done)
  :: else fi;
  if :: h==(x) -> h=0 :: else fi; unline(x); settle() }
#ifdef BUG_SHORT_SEALED
#define QUIET (h==0 && ql==0)
#else
#define QUIET (h==0 && ql==0 && done==0)
#endif
inline quiet_grant(x) { assert(done==0); h=x }
inline pass() { if :: ql>0 -> first() :: else -> h=0 fi }
inline success(p) { st[p]=4; assert(okc==0); okc=C(p); assert(done==okc) }
proctype client(byte p) {
 do
 :: d_step { st[p]==0 -> st[p]=1 }
 :: d_step { st[p]==1 -> acquire(C(p)); if :: h==C(p) -> st[p]=2 :: done!=0 -> st[p]=4 :: else fi }
 :: d_step { st[p]==1 && QUIET -> quiet_grant(C(p)); st[p]=2 }
 :: d_step { st[p]==2 -> st[p]=3; sent[C(p)]=1 }                             /* f returned nil */
 :: d_step { st[p]==2 && ck[p]+1<NC -> rel[C(p)]=1; if :: h==C(p) -> h=0; settle() :: else fi; ck[p]=ck[p]+1; st[p]=1 } /* f failed: released; the next Do */
 :: d_step { st[p]==2 && ck[p]+1<NC && h==C(p) -> rel[C(p)]=1; pass(); ck[p]=ck[p]+1; st[p]=1 }   /* by the short command */
 :: d_step { st[p]==3 && (done==C(p)) -> success(p) }                        /* answered */
 :: d_step { st[p]==3 && done!=C(p) -> seal(C(p)) }
#ifdef BUG_UNANSWERED
 :: d_step { st[p]==3 -> success(p) }                                       /* error taken for success */
#endif
 :: st[p]==4 -> break
 od }
/* the session of p is lost: it was told; what it sent may run until it is dropped */
proctype loss(byte p) { end: d_step { (st[p]==1||st[p]==2||st[p]==3) && ck[p]+1<NC && done!=C(p) -> gone[C(p)]=1; ck[p]=ck[p]+1; st[p]=1
#ifdef BUG_LOST_COUNTS
  ; if :: sent[C(p)-1] -> okc=C(p)-1; assert(done==okc) :: else fi
#endif
 } }
proctype late() { end: do
 :: d_step { sent[1] && done!=1 -> seal(1) } :: d_step { sent[2] && done!=2 -> seal(2) }
 :: d_step { sent[3] && done!=3 -> seal(3) } :: d_step { sent[4] && done!=4 -> seal(4) }
 :: d_step { rel[1] && h==1 -> h=0; settle() } :: d_step { rel[3] && h==3 -> h=0; settle() }
 :: d_step { rel[1] && h==1 -> pass() } :: d_step { rel[3] && h==3 -> pass() }
 od }
init { atomic { run client(0); run client(1); run loss(0); run loss(1); run late() } }
#ifdef LIVE
ltl ends { <> (st[LIVE]==4) }
#endif
