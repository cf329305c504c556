/* Transfer: a leader resigns in favour of a candidate that it names.
 *
 * Stands for:
 *   leader: transfer.go (Transfer), election.go (resignBy)
 *   internal/engine: hold.go (ReleaseBy, ReleasedBy)
 *   internal/core: release.go (leaveBy, releaseToFirst, notPassed, leftAsSaid)
 *   dsync/mongo: shapes_edit.go (succeeding), release.go (succeeded)
 *   internal/model: edit.go (release, toHead)
 * Abstracts from: time, notices, terms (each grant is one). A session may be lost at any time; its process is notified before
 * others drop its claims. A claim's id is used once, and no claim joins again after its release (internal/explore covers
 * both). Each Release runs when it is sent, or later, or again at any time. The first may have no answer.
 *
 * Checked: if Transfer reports that the candidate was elected, the write that released the leader granted the key to the
 * candidate; if Transfer reports that the candidate no longer waited, that write did not. Only the write that releases a leader
 * grants the key out of order, and only to the successor that this leader named. A process that believes it leads is the holder.
 * Every process finishes (LTL), even if the candidate leaves or dies.
 */
#ifndef NP
#define NP 3
#define NC 2
#endif
#define NCL (NP*NC)
byte h, q[NCL], ql;               /* claims are 1..NCL */
byte g[NCL];                      /* the queue without any Transfer, as long as q */
byte st[NP];                      /* 0 idle 1 waits 2 leads 3 transfers 4 ended 5 releases, for the candidate has left */
byte ck[NP], to[NCL+1];           /* the claim in use; the successor that its Release names */
byte nxt[NCL+1];                  /* who was granted the key in the write that released a claim */
bit dup[NCL+1], rel[NCL+1];       /* a Release with Successor may run late, or again; a plain one was sent */
bit gone[NCL+1];                  /* its session is dead */
bit unk[NP];                      /* a Release with Successor had no answer */
hidden byte i, j, r;              /* r: 1 released 2 the successor does not wait 3 not found */
#define C(p) ((p)*NC+ck[p]+1)
#define CUT(a, x) i=0; j=0; do :: i<ql -> if :: a[i]!=(x) -> a[j]=a[i]; j++ :: else fi; i++ :: else -> break od; \
  do :: j<ql -> a[j]=0; j++ :: else -> break od; i=0; j=0
inline has(x) { i=0; do :: (i<ql && q[i]!=(x)) -> i++ :: else -> break od } /* i<ql: it waits */
inline drop(x) { has(x); if :: i<ql -> CUT(q, x); CUT(g, x); ql-- :: else -> i=0 fi }
inline head(x) { i=ql-1; j=ql-1; do :: i<ql -> if :: q[i]!=(x) -> q[j]=q[i]; j-- :: else fi; if :: i==0 -> break :: else -> i-- fi od; q[0]=x; i=0; j=0 }
/* c: the leader's claim that this command releases; x: whom it names */
inline settle(c, x) { if :: h==0 && ql>0 -> assert(q[0]==g[0] || (c!=0 && q[0]==(x)));
    h=q[0]; drop(h); nxt[c]=h
  :: else fi; nxt[0]=0 }
inline clean() { if :: h!=0 && gone[h] -> h=0 :: else fi;
  r=1; do :: r<=NCL -> if :: gone[r] -> drop(r) :: else fi; r++ :: else -> break od; r=0 }
inline acquire(x) { clean(); has(x); if :: h!=(x) && i==ql -> q[ql]=x; g[ql]=x; ql++ :: else fi; i=0; settle(0, 0) }
inline plain(c) { if :: h==(c) -> h=0; settle(c, 0); r=1 :: else -> drop(c); settle(0, 0); r=3 fi }
inline succeed(c) { has(to[c]);
  if :: h==(c) && i<ql -> head(to[c]); h=0; settle(c, to[c]); r=1
  :: h==(c) && i==ql ->
#ifdef BUG_ANYWAY
     h=0; settle(c, 0); r=1
#else
     r=2
#endif
  :: h!=(c) -> r=3;
#ifdef BUG_REORDERS
     if :: i<ql -> head(to[c]) :: else fi
#endif
  fi; i=0 }
inline next(p) { unk[p]=0; if :: ck[p]+1<NC -> ck[p]=ck[p]+1; st[p]=0 :: else -> st[p]=4 fi }
inline elected(p) { assert(nxt[C(p)]==to[C(p)]); next(p) }
#define LEADS(p) assert(st[p]!=2 || h==C(p))
#if NP > 3
inline check() { LEADS(0); LEADS(1); LEADS(2); LEADS(3); r=0 }
#else
inline check() { LEADS(0); LEADS(1); LEADS(2); r=0 }
#endif
proctype client(byte p) {
 do
 :: d_step { st[p]==0 -> acquire(C(p)); st[p]=1; check() }
 :: d_step { st[p]==1 && h!=C(p) && h!=0 && gone[h] -> acquire(C(p)); check() }   /* it found the holder expired */
 :: d_step { st[p]==1 && h==C(p) -> st[p]=2 }
 :: d_step { st[p]==1 -> rel[C(p)]=1; plain(C(p)); next(p); check() }             /* it has stopped campaigning */
 :: d_step { st[p]==2 -> rel[C(p)]=1; plain(C(p)); next(p); check() }             /* Resign */
 :: d_step { st[p]==2 && ql>0 -> to[C(p)]=q[0]; st[p]=3 }
 :: d_step { st[p]==2 && ql>1 -> to[C(p)]=q[1]; st[p]=3 }
 :: d_step { st[p]==2 && ql>2 -> to[C(p)]=q[2]; st[p]=3 }
 :: d_step { st[p]==3 && !unk[p] -> unk[p]=1; dup[C(p)]=1 }  /* no answer; it runs later, or never */
 :: d_step { st[p]==3 && !unk[p] -> unk[p]=1; dup[C(p)]=1; succeed(C(p)); check() }  /* no answer; it has run */
 :: d_step { st[p]==3 -> dup[C(p)]=1; succeed(C(p));
      if :: r==1 -> elected(p)
      :: r==2 ->
#ifdef BUG_STICKS
         skip
#else
         st[p]=5
#endif
      :: r==3 && unk[p] -> elected(p)
      :: r==3 && !unk[p] -> assert(false)                                         /* nobody else removes it */
      fi; check() }
#ifdef BUG_TWICE
 :: d_step { st[p]==3 && unk[p] && ql>0 && to[C(p)]!=q[0] -> to[C(p)]=q[0] }      /* another Transfer of the same term */
#endif
 :: d_step { st[p]==5 -> rel[C(p)]=1; plain(C(p));
#ifdef BUG_FORGETS
      elected(p);
#else
      assert(nxt[C(p)]!=to[C(p)]); next(p);
#endif
      check() }
 :: st[p]==4 -> break
 od }
/* the session of p is lost: it was told, and Transfer says so; what it has sent may run until it is dropped */
proctype loss(byte p) { end: d_step { (st[p]==1||st[p]==2||st[p]==3||st[p]==5) -> gone[C(p)]=1;
#ifdef BUG_LOST_COUNTS
    if :: st[p]==3 -> unk[p]=1 :: else -> next(p) fi
#else
    next(p)
#endif
 } }
#define LATE(c) d_step { dup[c] && h==(c) -> succeed(c); check() } :: d_step { rel[c] && h==(c) -> plain(c); check() }
#ifdef BUG_REORDERS
#define AGAIN(c) d_step { dup[c] && h!=(c) -> succeed(c); check() }
#else
#define AGAIN(c) false
#endif
#if NP*NC == 6
proctype late() { end: do :: LATE(1) :: LATE(2) :: LATE(3) :: LATE(4) :: LATE(5) :: LATE(6)
 :: AGAIN(1) :: AGAIN(2) :: AGAIN(3) :: AGAIN(4) :: AGAIN(5) :: AGAIN(6) od }
#else
proctype late() { end: do :: LATE(1) :: LATE(2) :: LATE(3) :: LATE(4) :: AGAIN(1) :: AGAIN(2) :: AGAIN(3) :: AGAIN(4) od }
#endif
init { atomic { run client(0); run client(1); run client(2);
#if NP > 3
  run client(3);
#endif
  run loss(0); run loss(1); run late() } }
#ifdef LIVE
ltl ends { <> (st[LIVE]==4) }
#endif
