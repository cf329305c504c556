/* Fail-over: what a majority has, what only the primary has, and servers whose clocks differ.
 *
 * Stands for:
 *   dsync/mongo: command.go (write), heartbeat.go (heartbeat), session.go (expire, unregister), acquire.go (acquire),
 *     release.go (release), shapes.go (clean), shapes_settle.go (settle), notice.go (grants)
 *   internal/core: session.go (Deadline, heartbeatAnswered, lose), request.go (joinAnswered, granted), wait.go (expireLapsed),
 *     others.go (expiryAnswered), release.go (releaseAnswered, doubtRelease)
 * A write counts once a majority has it; a reply without that is an unknown outcome. Notices are made only from confirmed
 * replies.
 * Abstracts from: notAfter (a request that was sent may join forever); weights and the order of grants (weights.pml); the grace
 * (M stands for the margin and the grace); when a lost session is unregistered (here at any time; the code unregisters only in
 * Close); releases that are answered before a majority has them (internal/explore covers them); doubtRelease, which believes
 * that the store no longer has a claim only if the store says so again after a heartbeat (here once is enough, which is weaker).
 * There are at most NF fail-overs and MAXT grants.
 *
 * Checked: a process that runs and believes it holds the key is the holder in the state that the majority has, and nobody else
 * believes so (S1). Tokens grow (S2).
 *
 * com* = state that a majority has, l* = state of the current primary (com and its own uncommitted writes).
 * A reply counts only once what it shows is committed (w:majority; a command that changes nothing waits for the last optime). A
 * fail-over drops the uncommitted suffix, or commits it. The new primary's clock may differ by SK. o* = a deposed primary, which
 * can still answer commands that change nothing. Requests may run late, or twice, at any time. */
#define NP 2
#ifndef TTL
#define TTL 3
#endif
#ifndef M
#define M 2
#endif
#ifndef SK
#define SK 1
#endif
#ifndef NC
#define NC 1
#endif
#ifndef NCX
#define NCX(p) NC
#endif
#define NCL (NP*NC)
#define BIT(x) (1<<(x))
#ifndef MAXT
#define MAXT 4
#endif
#ifndef FRZ
#define FRZ(p) 0
#endif
#ifndef STALE
#define STALE 0
#endif
byte cst[NP], lst[NP], cage[NP], lage[NP], cask[NP], lask[NP], ch, lh, ctk, ltk, cq[NCL], lq[NCL], cql, lql, ct, lt;
bit dirty; byte lnt, nt; byte ntt[NCL+1], lntt[NCL+1]; /* notices of committed grants, with token: each may come at any later time, and again */
bit sk; byte nf;
bit old; byte ost[NP], oh, oq[NCL], oql, otk;
byte rn[NP], ss[NP], dl[NP], hb[NP], hba[NP], op[NP], ck[NP], kn[NP], tk[NP]; bit hbr[NP], opr[NP];
byte maxtok, maxcl;
hidden byte i, j;
#define C(p) ((p)*NC+ck[p]+1)
#define PC(x) (((x)-1)/NC)
#define CSENT(x) (((x)-1)%NC < ck[PC(x)] || (((x)-1)%NC==ck[PC(x)] && op[PC(x)]!=0))
#define RUN(p) (rn[p]==1 && !(ss[p]==1 && dl[p]==0))
#define LAPSED(s) (lst[s]!=1 || lage[s]+sk*SK>=TTL+lask[s]*SK)
inline qrm(x){ i=0;j=0; do :: i<lql -> if :: lq[i]!=(x) -> lq[j]=lq[i]; j++ :: else fi; i++ :: else -> break od; i=j; do :: i<lql -> lq[i]=0; i++ :: else -> break od; lql=j }
inline settle(){ if :: (lh==0&&lql>0) -> lh=lq[0]; lt=lt+1; ltk=lt; lnt=lnt|BIT(lh); lntt[lh]=lt; i=0; do :: i+1<lql -> lq[i]=lq[i+1]; i++ :: else -> break od; lql--; lq[lql]=0 :: else fi }
inline clean(D){ if :: (lh!=0 && ((D)>>PC(lh))&1) -> lh=0; ltk=0 :: else fi;
  i=0;j=0; do :: i<lql -> if :: ((D)>>PC(lq[i]))&1 -> skip :: else -> lq[j]=lq[i]; j++ fi; i++ :: else -> break od; i=j; do :: i<lql -> lq[i]=0; i++ :: else -> break od; lql=j }
inline x_acq(x,D){ clean(D); i=0; do :: (i<lql&&lq[i]!=(x)) -> i++ :: else -> break od; if :: (lh!=(x)&&i==lql) -> lq[lql]=x; lql++ :: else fi; settle(); dirty=1 }
inline x_rel(x){ if :: lh==(x) -> lh=0; ltk=0 :: else fi; qrm(x); settle(); dirty=1 }
/* S1: whoever believes it holds, holds in the committed state, and so does every possible continuation that is acknowledged */
inline check(){ i=0; do :: i<NP -> if :: (rn[i]==1&&op[i]==5) -> assert(ch==C(i)); :: else fi; i++ :: else -> break od; i=0;
  assert(!(rn[0]==1&&op[0]==5&&rn[1]==1&&op[1]==5)) }
inline commit(){ i=0; do :: i<NP -> cst[i]=lst[i]; cage[i]=lage[i]; cask[i]=lask[i]; if :: hb[i]==2||hb[i]==3 -> hbr[i]=1 :: else fi; if :: op[i]==2||op[i]==3||op[i]==7 -> opr[i]=1 :: else fi; i++ :: else -> break od;
  ch=lh; ctk=ltk; cql=lql; ct=lt; i=0; do :: i<NCL -> cq[i]=lq[i]; i++ :: else -> break od;
  i=1; do :: i<=NCL -> if :: (lnt>>i)&1 -> ntt[i]=lntt[i] :: else fi; lntt[i]=0; i++ :: else -> break od; nt=nt|lnt; lnt=0; dirty=0; i=0; check() }
inline rollback(){ i=0; do :: i<NP -> lst[i]=cst[i]; lage[i]=cage[i]; lask[i]=cask[i]; if :: (hb[i]==2||hb[i]==3)&&!hbr[i] -> hb[i]=0; hba[i]=0 :: else fi;
     if :: (op[i]==2||op[i]==3)&&!opr[i] -> op[i]=1 :: (op[i]==7&&!opr[i]) -> op[i]=6 :: else fi; i++ :: else -> break od;
  lh=ch; ltk=ctk; lql=cql; lt=ct; i=0; do :: i<NCL -> lq[i]=cq[i]; i++ :: else -> break od; i=1; do :: i<=NCL -> lntt[i]=0; i++ :: else -> break od; lnt=0; dirty=0; i=0 }
inline keepold(){ if :: STALE -> old=1; i=0; do :: i<NP -> ost[i]=cst[i]; i++ :: else -> break od; oh=ch; otk=ctk; oql=cql; i=0; do :: i<NCL -> oq[i]=cq[i]; i++ :: else -> break od; i=0 :: else fi }
inline lost(p){ if :: op[p]!=0 -> op[p]=9 :: else fi; ss[p]=2; dl[p]=0; hb[p]=0; hba[p]=0; hbr[p]=0; opr[p]=0; tk[p]=0; kn[p]=0 }
inline held(p,x){ op[p]=5; opr[p]=0; assert((x)>maxtok || ((x)==maxtok && maxcl==C(p))) /* S2 */; maxtok=x; maxcl=C(p); check() }
#ifdef BUG_ACKLOCAL
#define READYH(p) 1
#define READYO(p) 1
#else
#define READYH(p) (hbr[p])
#define READYO(p) (opr[p])
#endif
#ifdef BUG_NOTICE_LOCAL
#define HEARD(x) ((((nt|lnt)>>(x))&1)!=0)
#define NTTOK(x) (lntt[x]>0 -> lntt[x] : ntt[x])
#else
#define HEARD(x) (((nt>>(x))&1)!=0)
#define NTTOK(x) ntt[x]
#endif
#define NEWDL(p) (hba[p]<TTL-M -> TTL-M-hba[p] : 0)
#define CLIENT(p) \
 :: d_step{ RUN(p)&&ss[p]==1&&hb[p]==0 -> hb[p]=1; hba[p]=0 } \
 :: d_step{ ss[p]==1&&hb[p]==1&&rn[p]!=0 -> if :: lst[p]==1 -> lage[p]=0; lask[p]=sk; dirty=1; hb[p]=2; hbr[p]=0 :: else -> hb[p]=3; hbr[p]=!dirty fi } \
 :: d_step{ RUN(p)&&ss[p]==1&&hb[p]==2&&READYH(p) -> if :: NEWDL(p)>dl[p] -> dl[p]=NEWDL(p) :: else fi; hb[p]=0; hba[p]=0; hbr[p]=0 } \
 :: d_step{ RUN(p)&&ss[p]==1&&hb[p]==3&&hbr[p] -> lost(p) } \
 :: d_step{ RUN(p)&&ss[p]==1&&hb[p]>0 -> hb[p]=0; hba[p]=0; hbr[p]=0 } \
 :: d_step{ rn[p]==1&&ss[p]==1&&dl[p]==0 -> lost(p) } \
 :: d_step{ RUN(p)&&ss[p]==1&&op[p]==0&&ck[p]<NCX(p) -> op[p]=1 } \
 :: d_step{ rn[p]!=0&&op[p]==1&&lt<MAXT -> x_acq(C(p),kn[p]); op[p]=(lh==C(p)->2:3); tk[p]=ltk; opr[p]=0 } \
 :: d_step{ RUN(p)&&op[p]==2&&READYO(p) -> held(p,tk[p]) } \
 :: d_step{ RUN(p)&&op[p]==3&&READYO(p) -> op[p]=4; opr[p]=0 } \
 :: d_step{ RUN(p)&&op[p]>=2&&op[p]<=4 -> op[p]=1; opr[p]=0; tk[p]=0 } \
 :: d_step{ RUN(p)&&op[p]>=1&&op[p]<=4&&HEARD(C(p)) -> tk[p]=NTTOK(C(p)); held(p,tk[p]) } \
 :: d_step{ RUN(p)&&op[p]>=1&&op[p]<=5 -> op[p]=6; opr[p]=0; tk[p]=0 } \
 :: d_step{ rn[p]!=0&&op[p]==6&&lt<MAXT -> x_rel(C(p)); op[p]=7; opr[p]=0 } \
 :: d_step{ RUN(p)&&op[p]==7&&READYO(p) -> op[p]=0; ck[p]=ck[p]+1; opr[p]=0 } \
 :: d_step{ RUN(p)&&op[p]>=6&&op[p]<=7 -> op[p]=6; opr[p]=0 } \
 /* stale primary: a no-op may be answered */ \
 :: d_step{ old&&rn[p]!=0&&op[p]==1&&oh==C(p) -> op[p]=2; opr[p]=1; tk[p]=otk } \
 :: d_step{ old&&rn[p]!=0&&ss[p]==1&&hb[p]==1&&ost[p]==2 -> hb[p]=3; hbr[p]=1 } \
 :: d_step{ RUN(p)&&ss[p]==1&&old&&ost[1-p]==2 -> kn[p]=kn[p]|BIT(1-p) } \
 /* expire the other: 2 steps, executes, and known once committed */ \
 :: d_step{ RUN(p)&&ss[p]==1&&lst[1-p]==1&&LAPSED(1-p) -> lst[1-p]=2; lage[1-p]=0; lask[1-p]=0; dirty=1 } \
 :: d_step{ RUN(p)&&ss[p]==1&&lst[1-p]==2&&!dirty -> kn[p]=kn[p]|BIT(1-p) } \
 :: d_step{ rn[p]==1&&FRZ(p)&&ss[p]==1 -> rn[p]=2 } \
 :: d_step{ rn[p]==2 -> rn[p]=1; if :: (ss[p]==1&&dl[p]==0) -> lost(p) :: else fi; check() }
#define LATEC(x) \
 :: d_step{ CSENT(x)&&lt<MAXT -> x_acq(x,0) } \
 :: d_step{ CSENT(x)&&lt<MAXT -> x_acq(x,kn[PC(x)]) } \
 :: d_step{ ((x)-1)%NC<ck[PC(x)]&&lt<MAXT&&(lh==(x)) -> x_rel(x) }
#define LATES(s) :: d_step{ lst[s]==1&&(lage[s]>0||lask[s]!=sk) -> lage[s]=0; lask[s]=sk; dirty=1 } :: d_step{ ss[s]==2&&lst[s]==1 -> lst[s]=2; lage[s]=0; lask[s]=0; dirty=1 }
#define URGENT(p) (rn[p]==1&&ss[p]==1&&dl[p]==0)
init {
 d_step{ i=0; do :: i<NP -> rn[i]=1; ss[i]=1; dl[i]=TTL-M; cst[i]=1; lst[i]=1; i++ :: else -> break od; i=0 }
 do
 CLIENT(0) CLIENT(1)
#ifndef NOLATE
 LATES(0) LATES(1)
 LATEC(1) LATEC(2)
#endif
#if NC>1
 LATEC(3) LATEC(4)
#endif
 :: d_step{ dirty -> commit() }
 :: d_step{ nf<NF -> nf++; keepold(); rollback(); sk=1-sk }
 :: d_step{ nf<NF -> nf++; keepold(); rollback() }
 :: d_step{ nf<NF -> nf++; commit(); sk=1-sk }
 :: d_step{ !URGENT(0)&&!URGENT(1) -> i=0; do :: i<NP -> if :: dl[i]>0 -> dl[i]=dl[i]-1 :: else fi; if :: hb[i]!=0&&hba[i]<TTL -> hba[i]=hba[i]+1 :: else fi;
      if :: lst[i]==1&&lage[i]<TTL+1 -> lage[i]=lage[i]+1 :: else fi; if :: cst[i]==1&&cage[i]<TTL+1 -> cage[i]=cage[i]+1 :: else fi; i++ :: else -> break od; i=0 }
 od
}
