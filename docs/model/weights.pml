/* Weighted claims, the order of the queue, the bound on the grants of one write, Resize.
 *
 * Stands for:
 *   dsync/mongo: shapes_settle.go (settle), shapes.go (clean, maxGrants), shapes_edit.go (joining, releasing),
 *     resize.go (resizing), shapes_short.go (acquiring, releasing, handingOver)
 *   internal/model: edit.go (settle, acquire, enqueue, release), change.go (resize)
 *   internal/core: wait.go (waits, PollTime)
 * A waiter that gets no notice requests again (the safety poll). A try is one request, which leaves the queue again if it is not
 * granted. A short Release is here a short hand-over with an empty queue.
 * Abstracts from: sessions and time, lost and late requests (internal/explore covers all four). A claim may leave
 * the queue or the holders at any moment, as if its session had expired. Every notice may be lost. G stands for maxGrants: what
 * one write leaves, the next must grant.
 *
 * Checked in every state: no grant makes the holders' weights exceed the limit. Claims are granted in the order in which they
 * joined (First ahead of all). A command leaves the first waiter ungranted only if it does not fit, or because of the bound. And
 * in the end (LTL, weak fairness) every waiter is served.
 */
#ifndef NP
#define NP 3
#endif
#ifndef G
#define G 1        /* maxGrants */
#endif
#ifndef L
#define L 2        /* the limit */
#endif
#ifndef W
#define W(p) ((p)==0 -> L : 1)  /* process 0 is a writer */
#endif
#ifndef FIRST
#define FIRST(p) 0
#endif
#ifndef TRY
#define TRY(p) 0
#endif
byte lim=L;
byte h[NP];         /* 1: p's claim holds */
byte q[NP], ql;     /* the line */
byte before[NP];    /* whose claims joined ahead of p's, and are in the queue still: bits */
byte st[NP];        /* of the client: 0 idle 1 waiting 2 holds, as it knows */
byte used, k, resized;
hidden byte i, j, g;
#define BIT(x) (1<<(x))

inline total() { used=0; i=0; do :: i<NP -> if :: h[i] -> used=used+W(i) :: else fi; i++ :: else -> break od; i=0 }
inline unline(p) { i=0; j=0;
  do :: i<ql -> if :: q[i]!=(p) -> q[j]=q[i]; j++ :: else fi; i++ :: else -> break od;
  i=j; do :: i<ql -> q[i]=0; i++ :: else -> break od; ql=j;
  i=0; do :: i<NP -> before[i]=before[i]&(255-BIT(p)); i++ :: else -> break od; i=0; j=0; before[p]=0 }
inline grant(p) { g=p;
  assert(used+W(g)<=lim);   /* never beyond the limit */
  assert(before[g]==0);     /* in the order of the line */
  unline(g); h[g]=1;
#ifdef BUG_USED
  skip                      /* what was granted just now is not counted */
#else
  used=used+W(g)
#endif
  ; g=0 }
inline settle() { total(); k=0;
  do
  :: (ql>0 && k<G && used+W(q[0])<=lim) -> grant(q[0]); k++
#ifdef BUG_OVERTAKE
  :: (ql>1 && k<G && used+W(q[0])>lim && used+W(q[1])<=lim) -> grant(q[1]); k++
#endif
  :: else -> break
  od;
#ifdef BUG_USED
  total(); assert(used<=lim || resized);
#endif
  assert(ql==0 || k==G || used+W(q[0])>lim);  /* nothing that fits is left but by the bound */
  used=0; k=0 }
inline inline_ahead(p) { i=0; before[p]=0; do :: i<ql -> before[p]=before[p]|BIT(q[i]); i++ :: else -> break od; i=0 }
/* joining puts p's claim into the line unless it is there or holds */
inline join(p) { i=0; do :: (i<ql && q[i]!=(p)) -> i++ :: else -> break od;
  if :: (!h[p] && i==ql && W(p)<=lim) ->
        if :: FIRST(p) -> i=ql; do :: i>0 -> q[i]=q[i-1]; i-- :: else -> break od; q[0]=p; ql++;
              i=0; do :: i<NP -> if :: i!=(p) && before[i]!=0 -> before[i]=before[i]|BIT(p) :: else fi; i++ :: else -> break od;
              i=1; do :: i<ql -> before[q[i]]=before[q[i]]|BIT(p); i++ :: else -> break od; before[p]=0
           :: else -> inline_ahead(p); q[ql]=p; ql++ fi
     :: else fi; i=0; j=0 }
inline acquire(p) {
#ifdef BUG_REPEAT          /* a request for a claim that is in the queue already is a no-op */
  i=0; do :: (i<ql && q[i]!=(p)) -> i++ :: else -> break od;
  if :: i<ql -> i=0 :: else -> i=0; join(p); settle() fi
#else
  join(p); settle()
#endif
  if :: TRY(p) && !h[p] -> unline(p) :: else fi }
inline release(p) { h[p]=0; unline(p);
#ifndef BUG_NOSETTLE
  settle()
#endif
}

/* The short commands: their conditions, and what becomes of the key where these are met. They are for a claim of weight
 * 1 that knows the limit as 1. Which claims do is left open here: a limit may have been 1 before, and be so again. */
#define NONE (!h[0] && !h[1] && !h[2] && !h[NP-1])
#ifdef BUG_SHORT_OVERTAKES
#define LINELESS 1
#else
#define LINELESS (ql==0)
#endif
#ifdef BUG_SHORT_LIMIT
#define SIMPLE(p) (W(p)==1)
#else
#define SIMPLE(p) (W(p)==1 && lim==1)
#endif
#define QUIET(p) (SIMPLE(p) && NONE && LINELESS)
#ifdef BUG_SHORT_BESIDE /* among those that hold */
#define MINE(p) (SIMPLE(p) && h[p])
#else
#define MINE(p) (SIMPLE(p) && h[p] && h[0]+h[1]+h[2]+(NP>3 -> h[NP-1] : 0)==1)
#endif
#ifdef BUG_SHORT_SECOND
#define NEXT q[(ql>1 -> 1 : 0)]
#else
#define NEXT q[0]
#endif
inline quiet_acquire(p) { inline_ahead(p); used=0; grant(p); used=0 }
inline pass(p) { h[p]=0; total();
#ifndef BUG_SHORT_STRANDS
  if :: ql>0 -> grant(NEXT) :: else fi;
#endif
  assert(ql==0 || used+W(q[0])>lim);          /* as after settle */
  used=0 }

/* A process: asks, waits (a notice may come, and may not; it polls), holds, releases. It may stop when it holds
 * nothing. With KEEPS process 0 holds at the start, and never again, and process KEEPS may hold forever: so no
 * later command of theirs can be counted on. */
#define INLINE(p) ((ql>0&&q[0]==p) || (ql>1&&q[1]==p) || (ql>2&&q[2]==p) || (NP>3&&ql>3&&q[NP-1]==p))
#define REFUSED(p) (!h[p] && !INLINE(p))
#ifdef KEEPS
#define ONCE(p) ((p)==0)
#else
#define KEEPS NP
#define ONCE(p) 0
#endif
proctype client(byte me) {
  do
  :: d_step { st[me]==0 && !ONCE(me) -> acquire(me); st[me]=(REFUSED(me) -> 0 : 1) }
  :: d_step { st[me]==0 && !ONCE(me) && QUIET(me) -> quiet_acquire(me); st[me]=1 }
  :: st[me]==0 -> break
#ifndef BUG_NOPOLL
  :: d_step { st[me]==1 && !h[me] -> acquire(me); st[me]=(REFUSED(me) -> 0 : 1) }
#endif
  :: d_step { st[me]==1 && h[me] -> st[me]=2 }   /* by the answer, or the notice of its grant */
  :: d_step { st[me]==2 -> release(me); st[me]=0 }
  :: d_step { st[me]==2 && MINE(me) -> pass(me); st[me]=0 }
  :: st[me]==2 && me==KEEPS -> break
  :: st[me]==3 -> break
  od }

#ifdef RESIZE
/* Somebody changes the limit: once smaller, once back. A claim in the queue that would not fit refuses it. */
inline resize(n) { i=0; j=0; do :: i<ql -> if :: W(q[i])>(n) -> j=1 :: else fi; i++ :: else -> break od; i=0;
#ifdef BUG_RESIZE
  j=0;
#endif
  if :: j==0 -> lim=n; resized=1; settle() :: else fi; j=0 }
proctype operator() { end: d_step { resize(1) } }
#endif
#ifdef DEATHS
/* The claims of one that died are dropped by whoever comes by, holders and waiters alike. */
proctype death() { end: d_step { st[0]<3 -> st[0]=3; release(0) } }
#endif
#ifdef CANCEL
/* One gives up: its claim leaves the line in one Release. */
proctype cancel() { end: d_step { st[2]==1 && !h[2] -> release(2); st[2]=0 } }
#endif

init { atomic {
  if :: ONCE(0) -> h[0]=1; st[0]=2 :: else fi;
  i=0; do :: i<NP -> run client(i); i++ :: else -> break od; i=0;
#ifdef RESIZE
  run operator();
#endif
#ifdef DEATHS
  run death();
#endif
#ifdef CANCEL
  run cancel();
#endif
} }
#ifdef LIVE
ltl served { [] ((st[LIVE]==1) -> <> (st[LIVE]!=1)) }
#endif
