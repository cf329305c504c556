/* Fixed leases: Session.Acquire and Lease.Extend.
 *
 * Stands for: internal/engine: acquire.go date (an Extend sets the first end), claim.go expire, hold.go Extend;
 * dsync/mongo/hold.go extending (an end only moves to a later one), shapes_settle.go settle (a grant sets no end),
 * shapes.go clean.
 * Abstracts from: tokens, so a late Extend may be for an earlier grant, which is worse; margin and grace are one tick
 * together. The code goes on under a new claim where an Extend says "not held"; here it is the same claim, which is worse.
 *
 * Checked: who holds by its own clock is the holder in the store, and it is one.
 *
 * Claims with e. Until its first Extend a granted claim lives with its session, which may expire at any time; after that
 * only e ends it. Two processes, limit 1.
 * MODE 0: a grant counts as it arrives, and its deadline from the arrival (planted bug)
 * MODE 1: a grant counts as it arrives; deadline from the send of the last request (planted bug)
 * MODE 3: a grant must be confirmed by an Extend; deadline from Extend's send
 * Extend: e := max(e, now+L); two lease lengths L1 > L2 may be asked for. */
#define NP 2
#ifndef L1
#define L1 3
#endif
#ifndef L2
#define L2 2
#endif
#ifndef M
#define M 1
#endif
#ifdef BUG_FROM_REPLY
#define MODE 0
#elif defined(BUG_FROM_LAST_SEND)
#define MODE 1
#else
#define MODE 3
#endif
byte h, e;           /* holder, remaining ticks of its lease at the server (0 = lapsed, or it has no end) */
bit un;              /* the holder has no end yet */
byte q[NP], ql;
byte nt;             /* notices of grants, which may come at any later time, and again */
byte op[NP];         /* 0 idle 1 acq sent 2 granted 3 not granted 4 waiting 5 HELD 6 done */
byte ext[NP];        /* 0 none 1 sent 2 ok 3 no ; */
byte exl[NP];        /* length asked for */
byte exa[NP];        /* age of extend's send */
byte sa[NP];         /* age of the last send of Acquire */
bit x1[NP], x2[NP], rl[NP]; /* ever sent an Extend of L1/L2, a Release (may arrive late any time) */
byte dl[NP];
hidden byte i, j;
#define C(p) (p+1)
#define MX L1
inline clean(){ if :: (h!=0&&!un&&e==0) -> h=0 :: else fi }
inline settle(){ if :: (h==0&&ql>0) -> h=q[0]; e=0; un=1; nt=nt|(1<<h); i=0; do :: i+1<ql -> q[i]=q[i+1]; i++ :: else -> break od; ql--; q[ql]=0 :: else fi }
inline qrm(x){ i=0;j=0; do :: i<ql -> if :: q[i]!=(x) -> q[j]=q[i]; j++ :: else fi; i++ :: else -> break od; i=j; do :: i<ql -> q[i]=0; i++ :: else -> break od; ql=j }
inline chk(){ assert(!(op[0]==5&&op[1]==5)); i=0; do :: i<NP -> if :: op[i]==5 -> assert(h==C(i)) :: else fi; i++ :: else -> break od; i=0 }
inline x_acq(x){ clean(); i=0; do :: (i<ql&&q[i]!=(x)) -> i++ :: else -> break od; if :: (h!=(x)&&i==ql) -> q[ql]=x; ql++ :: else fi; settle(); chk() }
inline x_rel(x){ if :: h==(x) -> h=0; e=0; un=0 :: else fi; qrm(x); settle(); chk() }
#ifdef BUG_SHORTENS
#define NE(L) (L)
#else
#define NE(L) (e>(L) -> e : (L))
#endif
#define EXTOK(x) (h==(x)&&(un||e>0))
inline x_ext(x,L){ if :: EXTOK(x) -> e=NE(L); un=0 :: else fi; }
#define LEFT(a,L) ((a)+M<(L) -> (L)-M-(a) : 0)
inline sethold(p,a,L){ if :: LEFT(a,L)>0 -> op[p]=5; dl[p]=LEFT(a,L); chk() :: else -> op[p]=6; dl[p]=0; rl[p]=1 fi }
inline lostc(p){ op[p]=6; dl[p]=0; rl[p]=1; ext[p]=0; exa[p]=0; exl[p]=0; sa[p]=0 }
#if MODE==0
#define GRANT(p,noticed) sethold(p,0,L1)
#elif MODE==1
#define GRANT(p,noticed) sethold(p,sa[p],L1)
#else
#define GRANT(p,noticed) op[p]=7; sa[p]=0  /* 7: granted, to be confirmed by Extend */
#endif
#define RUN(p) !(op[p]==5&&dl[p]==0)
#define CLIENT(p) \
 :: d_step{ op[p]==0 -> op[p]=1; sa[p]=0 } \
 :: d_step{ op[p]==1 -> x_acq(C(p)); op[p]=(h==C(p)->2:3) } \
 :: d_step{ op[p]==2 -> GRANT(p,0) } \
 :: d_step{ op[p]==3 -> op[p]=4 } \
 :: d_step{ op[p]>=1&&op[p]<=4 -> op[p]=1; sa[p]=0 } \
 :: d_step{ op[p]>=1&&op[p]<=4&&(nt>>C(p))&1 -> GRANT(p,1) } \
 :: d_step{ RUN(p)&&(op[p]==5||op[p]==7)&&ext[p]==0 -> ext[p]=1; exl[p]=L1; exa[p]=0; x1[p]=1 } \
 :: d_step{ RUN(p)&&op[p]==5&&ext[p]==0&&L2>0 -> ext[p]=1; exl[p]=L2; exa[p]=0; x2[p]=1 } \
 :: d_step{ ext[p]==1 -> ext[p]=(EXTOK(C(p))->2:3); x_ext(C(p),exl[p]) } \
 :: d_step{ RUN(p)&&ext[p]==2 -> if :: (op[p]==5||op[p]==7) -> if :: op[p]==7 -> if :: LEFT(exa[p],exl[p])>0 -> op[p]=5; dl[p]=LEFT(exa[p],exl[p]) :: else -> skip fi :: else -> if :: LEFT(exa[p],exl[p])>dl[p] -> dl[p]=LEFT(exa[p],exl[p]) :: else fi fi :: else fi; ext[p]=0; exa[p]=0; exl[p]=0; chk() } \
 :: d_step{ RUN(p)&&ext[p]==3 -> if :: op[p]==7 -> op[p]=1; sa[p]=0; ext[p]=0; exa[p]=0; exl[p]=0 :: else -> lostc(p) fi } \
 :: d_step{ RUN(p)&&(ext[p]==1||ext[p]==2) -> ext[p]=0; exa[p]=0; exl[p]=0 } \
 :: d_step{ op[p]==5&&dl[p]==0 -> lostc(p) } \
 :: d_step{ RUN(p)&&(op[p]==5||op[p]==4||op[p]==7) -> lostc(p) } \
 /* late and duplicated */ \
 :: d_step{ op[p]!=0 -> x_acq(C(p)) } \
 :: d_step{ x1[p]&&h==C(p) -> x_ext(C(p),L1) } \
 :: d_step{ x2[p]&&h==C(p) -> x_ext(C(p),L2) } \
 :: d_step{ rl[p]&&op[p]==6 -> x_rel(C(p)) }
init { do
 CLIENT(0) CLIENT(1)
 :: d_step{ h!=0&&un -> h=0; un=0; settle(); chk() } /* the session of the holder expires */
 :: d_step{ !(op[0]==5&&dl[0]==0) && !(op[1]==5&&dl[1]==0) -> if :: e>0 -> e-- :: else fi;
     i=0; do :: i<NP -> if :: dl[i]>0 -> dl[i]=dl[i]-1 :: else fi; if :: op[i]>=1&&op[i]<=4&&sa[i]<MX -> sa[i]=sa[i]+1 :: else fi; if :: ext[i]!=0&&exa[i]<MX -> exa[i]=exa[i]+1 :: else fi; i++ :: else -> break od; i=0 }
 od }
