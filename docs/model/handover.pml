/* Hand-over within a process: a claim whose Release was sent is never used again.
 *
 * Stands for: internal/engine: queue.go reuse, handOff and admit, release.go Unlock and runRelease.
 * Abstracts from: sessions and time; that readers share one hold; tokens (token.pml); Linger (yield.pml).
 *
 * Checked: one goroutine or process at a time holds, and it is the holder in the store.
 *
 * Process 0 has two goroutines (g0,g1) that share the store claim; process 1 competes with own claims.
 * Release requests may be lost, late, duplicated. Rules: KEEP (correct): once Release(A) was sent, A is never handed on or re-used.
 * BUG_REVIVE: a Release that got no answer is forgotten and the claim handed to the local waiter.
 * BUG_STALEUNLOCK: a late/retried Unlock of an earlier local hold is conditional on the claim only, not on the local hold. */
#define NCL 4
byte h, q[NCL], ql; bit rs[NCL+1]; /* release ever sent */
byte A=1; byte g[2]; /* 0 idle 1 wants 2 holds 3 done */ bit sent, st0; /* claim asked; */
byte rel; /* process 0: release of A under way unanswered */
byte b; /* proc 1: 0 idle 1 asked 2 holds 3 done */
hidden byte i,j;
inline qrm(x){ i=0;j=0; do :: i<ql -> if :: q[i]!=(x) -> q[j]=q[i]; j++ :: else fi; i++ :: else -> break od; i=j; do :: i<ql -> q[i]=0; i++ :: else -> break od; ql=j }
inline settle(){ if :: (h==0&&ql>0) -> h=q[0]; i=0; do :: i+1<ql -> q[i]=q[i+1]; i++ :: else -> break od; ql--; q[ql]=0 :: else fi }
inline acq(x){ i=0; do :: (i<ql&&q[i]!=(x)) -> i++ :: else -> break od; if :: (h!=(x)&&i==ql) -> q[ql]=x; ql++ :: else fi; settle() }
inline x_rel(x){ if :: h==(x) -> h=0 :: else fi; qrm(x); settle() }
inline chk(){ assert(!(b==2&&(g[0]==2||g[1]==2))); assert(!(g[0]==2&&g[1]==2)); assert(!(g[0]==2||g[1]==2)||h==A); assert(b!=2||h==4) }
init { do
 :: d_step{ g[0]==0 -> g[0]=1 }
 :: d_step{ g[1]==0 -> g[1]=1 }
 :: d_step{ (g[0]==1||g[1]==1)&&!(g[0]==2||g[1]==2)&&rel==0&&A<4 -> acq(A); sent=1 }
 :: d_step{ sent&&h==A&&rel==0&&g[0]==1&&g[1]!=2 -> g[0]=2; chk() }
 :: d_step{ sent&&h==A&&rel==0&&g[1]==1&&g[0]!=2 -> g[1]=2; chk() }
 /* unlock: hand on */
 :: d_step{ g[0]==2&&g[1]==1 -> g[0]=3; g[1]=2; st0=1; chk() }
 :: d_step{ g[1]==2&&g[0]==1 -> g[1]=3; g[0]=2; chk() }
 /* unlock: release (whether or not somebody has just begun to wait) */
 :: d_step{ g[0]==2 -> g[0]=3; rel=1; rs[A]=1 }
 :: d_step{ g[1]==2 -> g[1]=3; rel=1; rs[A]=1 }
 :: d_step{ rel==1 -> x_rel(A); rel=2 }
 :: d_step{ rel==2 -> rel=0; sent=0; A++ } /* answered */
#ifdef BUG_REVIVE
 :: d_step{ rel>0 -> rel=0 }
#else
 :: d_step{ rel>0 -> rel=0; sent=0; A++ } /* abandoned: the claim id is spent all the same */
#endif
#ifdef BUG_STALEUNLOCK
 :: d_step{ st0&&g[1]==2 -> x_rel(A); chk() }
#endif
 :: d_step{ rs[1] -> x_rel(1); chk() }
 :: d_step{ rs[2] -> x_rel(2); chk() }
 :: d_step{ rs[3] -> x_rel(3); chk() }
 :: d_step{ b==0 -> acq(4); b=1 }
 :: d_step{ b==1&&h==4 -> b=2; chk() }
 :: d_step{ b==2 -> b=3; x_rel(4); chk() }
 od }
