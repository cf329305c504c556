/* Nobody waits forever: what is left in the store of requests that come late or never.
 *
 * Stands for: internal/engine: discard.go (a claim with an attempt that was not answered is released once
 * more when that is void), acquire.go send (notAfter) and rest (a waiter requests again, and expires sessions ahead), expiry.go;
 * dsync/mongo/shapes_edit.go joining (nothing joins after notAfter); shapes_short.go, the short commands.
 * Abstracts from: as core.pml; the waiter expires whoever stands ahead, at once where the code staggers it.
 *
 * Checked: after the faults have ended, nobody waits for more than B ticks, but for what comes late meanwhile.
 *
 * Liveness as bounded safety. Chaos phase (anything may fail), then a stable phase in which every tick
 * each running process heartbeats, answers what it owes, and each waiter polls once (the net); all notices may be lost.
 * A late request is one-shot and may arrive at ANY time (also in the stable phase).
 * Property S4: in the stable phase nobody waits more than B ticks since the last late arrival / new attempt. */
#ifndef NP
#define NP 2
#endif
#ifndef NC
#define NC 2
#endif
#define TTL 3
#define M 1
#ifndef K
#define K 1          /* ticks after which a second Release is sent (maxTimeMS over) */
#endif
#ifndef NS
#define NS 2
#endif
#ifndef NCP
#define NCP(p) NC
#endif
#define NSS (NP*NS)
#define NCL (NP*NC)
#ifndef B
#define B 9
#endif
#define BIT(x) (1<<(x))
byte st[NSS], age[NSS], h, q[NCL], ql, cs[NCL+1];
byte la[NCL+1];      /* late acquire in flight: 0 none, else 1+age of the attempt (saturating at K+2) */
bit lw[NCL+1];       /* late release in flight */
byte n2[NCL+1];      /* second Release owed: 0 no, else 1+age of last unanswered attempt, sat K+1 */
bit tr[NCL+1];
byte rn[NP], si[NP], dl[NP], op[NP], ck[NP], kn[NP]; bit pol[NP];
/* op: 0 idle 1 attempt unknown 4 waiting 5 HELD 6 releasing */
bit stable; byte stab; bit sug[NP]; 
hidden byte i, j, c;
#define S(p) ((p)*NS+si[p])
#define C(p) ((p)*NC+ck[p]+1)
#define CX(p) ((p)*NC+1)

inline qremove(x) { i=0; j=0;
  do :: i<ql -> if :: q[i]!=(x) -> q[j]=q[i]; j++ :: else fi; i++ :: else -> break od;
  i=j; do :: i<ql -> q[i]=0; i++ :: else -> break od; ql=j }
inline first() { h=q[0]; i=0; do :: i+1<ql -> q[i]=q[i+1]; i++ :: else -> break od; ql--; q[ql]=0 }
inline settle() { if :: (h==0 && ql>0) -> first() :: else fi }
inline clean(D) {
  if :: (h!=0 && ((D)>>cs[h])&1) -> h=0 :: else fi;
  i=0; j=0;
  do :: i<ql -> if :: (((D)>>cs[q[i]])&1) -> skip :: else -> q[j]=q[i]; j++ fi; i++ :: else -> break od;
  i=j; do :: i<ql -> q[i]=0; i++ :: else -> break od; ql=j }
inline x_acq(x,D,ok) { clean(D);
  i=0; do :: (i<ql && q[i]!=(x)) -> i++ :: else -> break od;
  if :: (h!=(x) && i==ql && (ok)) -> q[ql]=x; ql++ :: else fi;
  settle(); if :: tr[x] -> qremove(x) :: else fi }
inline x_rel(x) { if :: h==(x) -> h=0 :: else fi; qremove(x); settle() }
#ifdef BUG_SHORT_NOTAFTER
#define QUIET(ok) (h==0 && ql==0)
#else
#define QUIET(ok) (h==0 && ql==0 && (ok))
#endif
inline x_pass() { if :: ql>0 -> first() :: else -> h=0 fi }
inline expireall(p) { /* whoever holds or is ahead: conditional on the server's clock */
  if :: (h!=0 && cs[h]!=S(p) && (st[cs[h]]!=1||age[cs[h]]>=TTL)) -> st[cs[h]]=2; age[cs[h]]=0; kn[p]=kn[p]|BIT(cs[h]) :: else fi;
  i=0; do :: i<ql -> if :: (cs[q[i]]!=S(p) && (st[cs[q[i]]]!=1||age[cs[q[i]]]>=TTL)) -> st[cs[q[i]]]=2; age[cs[q[i]]]=0; kn[p]=kn[p]|BIT(cs[q[i]]) :: else fi; i++ :: else -> break od }
inline next(p) { op[p]=0; ck[p]=ck[p]+1 }
inline lost(p) { kn[p]=kn[p]|BIT(S(p));
  if :: op[p]!=0 -> next(p) :: else fi;
  n2[CX(p)]=0; n2[CX(p)+NC-1]=0;
  si[p]=si[p]+1; if :: si[p]==NS -> rn[p]=0; si[p]=NS-1 :: else -> st[S(p)]=1; age[S(p)]=0; dl[p]=TTL-M fi }

#define OWE(x) n2[x]=1
#ifdef BUG_NOTAFTER
#define JOINOK(x) 1
#else
#define JOINOK(x) (la[x]<=K)
#endif
#define ARRIVES(x) 1
#ifdef BUG_ABANDON
#define ABAND(p) :: d_step{ rn[p]==1 && op[p]==6 && !stable -> next(p) }
#else
#define ABAND(p)
#endif
#ifdef BUG_SHORT_ONLY /* what changed nothing is taken for done */
#define RELEASE_SHORT(p) :: d_step{ rn[p]==1 && op[p]==6 -> if :: h==C(p) -> x_pass() :: else fi; next(p) }
#else
#define RELEASE_SHORT(p) :: d_step{ rn[p]==1 && op[p]==6 && h==C(p) -> x_pass(); next(p) }
#endif
#ifdef BUG_TRYNOEXPIRE
#define MAYEXPIRE(p) (!tr[C(p)])
#else
#define MAYEXPIRE(p) 1
#endif
#ifdef BUG_NOPOLL
#define POLLS(p) 0
#else
#define POLLS(p) 1
#endif
#ifndef TRYP
#define TRYP(p) 0
#endif

#define CLIENT(p) \
 /* begin an attempt */ \
 :: d_step{ rn[p]==1 && op[p]==0 && ck[p]<NCP(p) && !BUSY2(p) -> cs[C(p)]=S(p); tr[C(p)]=TRYP(p); op[p]=1; stab=0; pol[p]=0 } \
 /* one attempt (also a repeat, also a poll), answered */ \
 :: d_step{ rn[p]==1 && (op[p]==1||op[p]==4) && !pol[p] && POLLS(p) -> if :: MAYEXPIRE(p) -> expireall(p) :: else fi; x_acq(C(p),kn[p],1); pol[p]=1; \
       if :: h==C(p) -> op[p]=5; KEEP2X(p) :: else -> op[p]=4 fi } \
 /* the same by the short command; where it changes nothing the one above follows */ \
 :: d_step{ rn[p]==1 && (op[p]==1||op[p]==4) && !pol[p] && POLLS(p) && QUIET(1) -> h=C(p); pol[p]=1; op[p]=5; KEEP2X(p) } \
 /* executed, reply lost */ \
 :: d_step{ !stable && rn[p]==1 && (op[p]==1||op[p]==4) -> x_acq(C(p),kn[p],1); OWE(C(p)); op[p]=1 } \
 /* under way for long: may arrive late or never */ \
 :: d_step{ !stable && rn[p]==1 && (op[p]==1||op[p]==4) && la[C(p)]==0 -> la[C(p)]=1; OWE(C(p)); op[p]=1 } \
 /* notice of its grant */ \
 :: d_step{ rn[p]==1 && (op[p]==1||op[p]==4) && h==C(p) && !tr[C(p)] -> op[p]=5; KEEP2X(p) } \
 /* give up */ \
 :: d_step{ !stable && rn[p]==1 && (op[p]==1||op[p]==4) -> op[p]=6 } \
 /* a try that was refused */ \
 :: d_step{ rn[p]==1 && op[p]==4 && tr[C(p)] && !stable -> TRYEND(p) } \
 :: d_step{ rn[p]==1 && op[p]==5 -> op[p]=6 } \
 :: d_step{ rn[p]==1 && op[p]==6 -> x_rel(C(p)); next(p) } \
 RELEASE_SHORT(p) \
 :: d_step{ !stable && rn[p]==1 && op[p]==6 -> x_rel(C(p)) } \
 :: d_step{ !stable && rn[p]==1 && op[p]==6 && !lw[C(p)] -> lw[C(p)]=1 } \
 ABAND(p) \
 /* the second Release, when the attempt can no longer run */ \
 :: d_step{ rn[p]==1 && SECOND(p,CX(p)) -> x_rel(CX(p)); n2[CX(p)]=0 } \
 SEC2(p) \
 :: d_step{ !stable && rn[p]==1 && KILLABLE(p) -> rn[p]=0; n2[CX(p)]=0; n2[CX(p)+NC-1]=0; if :: op[p]!=0 -> next(p) :: else fi; dl[p]=0; kn[p]=0 }
#define SEC2(p) :: d_step{ rn[p]==1 && SECOND(p,CX(p)+1) && NC>1 -> x_rel(CX(p)+1); n2[CX(p)+1]=0 }
#define SECOND(p,x) (n2[x]>K && ck[p]>(x)-CX(p))
#define BUSY2(p) 0
#ifdef BUG_ONERELEASE
#define KEEP2X(p) n2[C(p)]=0
#define TRYEND(p) n2[C(p)]=0; next(p)
#else
#define KEEP2X(p) skip
#define TRYEND(p) op[p]=6
#endif
#ifndef KILLABLE
#define KILLABLE(p) (p==0)
#endif
#ifndef LOSABLE
#define LOSABLE(p) (p==0)
#endif
#define LATEC(x) \
 :: d_step{ la[x]>0 && ARRIVES(x) -> x_acq(x,0,JOINOK(x)); la[x]=0; stab=0 } \
 :: d_step{ la[x]>0 && QUIET(la[x]<=K) -> h=x; la[x]=0; stab=0 } \
 :: d_step{ la[x]>0 -> la[x]=0 } \
 :: d_step{ lw[x] -> x_rel(x); lw[x]=0; stab=0 } \
 :: d_step{ lw[x] && h==(x) -> x_pass(); lw[x]=0; stab=0 } \
 :: d_step{ lw[x] -> lw[x]=0 }
#define SUR(s) :: d_step{ s%NS<si[s/NS] && st[s]==1 -> st[s]=2; age[s]=0 } \
   :: d_step{ s%NS<si[s/NS] && st[s]==2 -> st[s]=0; age[s]=0 }
#define READY(p) (rn[p]!=1 || (op[p]!=5 && op[p]!=6 && ((op[p]!=1 && op[p]!=4) || pol[p] || !POLLS(p)) && !SECOND(p,CX(p)) && !(NC>1 && SECOND(p,CX(p)+NC-1))))
#define WAITING(p) (rn[p]==1 && (op[p]==1||op[p]==4))
#if NP>2
#define ALLREADY (READY(0)&&READY(1)&&READY(2))
#define ANYW (WAITING(0)||WAITING(1)||WAITING(2))
#else
#define ALLREADY (READY(0)&&READY(1))
#define ANYW (WAITING(0)||WAITING(1))
#endif
/* a tick; HBSET = processes whose heartbeat got through in this tick */
#define TICK(G,MASK) :: d_step{ G -> \
   i=0; do :: i<NSS -> if :: (st[i]==1 && age[i]<TTL) -> age[i]=age[i]+1 :: else fi; i++ :: else -> break od; \
   i=0; do :: i<=NCL -> if :: (la[i]>0 && la[i]<K+2) -> la[i]=la[i]+1 :: else fi; if :: (n2[i]>0 && n2[i]<=K) -> n2[i]=n2[i]+1 :: else fi; i++ :: else -> break od; \
   c=0; do :: c<NP -> pol[c]=0; if :: rn[c]==1 -> dl[c]=dl[c]-1; if :: dl[c]==0 -> lost(c) :: else -> if :: ((MASK)>>c)&1 -> dl[c]=TTL-M; age[S(c)]=0 :: else fi fi :: else fi; c++ :: else -> break od; c=0; \
   if :: (stable && ANYW) -> stab=stab+1; assert(stab<=B) :: else stab=0 fi }

init {
 d_step{ i=0; do :: i<NP -> rn[i]=1; dl[i]=TTL-M; st[i*NS]=1; i++ :: else -> break od; i=0 }
 do
 CLIENT(0)
 CLIENT(1)
#if NP>2
 CLIENT(2)
#endif
 LATEC(1) LATEC(2)
#if NCL>2
 LATEC(3)
#endif
#if NCL>3
 LATEC(4)
#endif
 SUR(0)
#if NS>1
 SUR(2)
#endif
 :: d_step{ !stable -> stable=1 }
 TICK((!stable),255)
 TICK((!stable),254)
 TICK((stable && ALLREADY),255)
 od
}
