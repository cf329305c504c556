/* A claim that is kept after its use: Linger, Yield, and how long others wait for it.
 *
 * Stands for:
 *   internal/core: hold.go (begin, mayKeep, wouldKnow, mayLinger, handOff, notifiedTurn), queue.go (admit),
 *     listener.go (hears, listenerReady, noticed, crowded), request.go (sendJoin, joinAnswered, granted)
 *   dsync/mongo: notice.go (yields, acquired, grants)
 * A claim that lingers is used again. Each request notes which listener was ready when it was sent. A reply or a notice that
 * grants the claim says whether others wait behind it. Each Acquire of the first waiter makes notices for holders with Yield.
 * Abstracts from: the store's other commands, losses (internal/explore covers them), and who the others are. One process keeps the
 * key. Others hold it at the start, wait for it, get it, and release it or give up. Time is in ticks. A use lasts at most H, and
 * waiters poll after POLL. How the process learns of its grant in the end is in notices.pml.
 *
 * Checked: others in the queue wait, while the process keeps the key, at most
 *   RELIABLE  (no notice is lost, none takes a tick)           H
 *   BREAKS    (the listener breaks, and this is noticed)       max(TURN, LINGER) + H + LINGER
 *   ONELOST   (one notice is lost, and this is not noticed)    POLL + H
 *   else      (any may be lost)                                max(WT, TURN, LINGER) + H + LINGER
 *   DEAF      (the store can't notify)                         max(TURN, LINGER) + H + LINGER
 */
#define H 1
#define TURN 1
#define LINGER 2
#define WT 6                  /* notifiedTurn */
#ifndef POLL
#define POLL 6
#endif
#define MAXAGE 12
#ifdef RELIABLE
#define B H
#elif defined(BREAKS) || defined(DEAF)
#define B (LINGER+H+LINGER)
#elif defined(ONELOST)
#define B (POLL+H)
#else
#define B (WT+H+LINGER)
#endif
byte k=3;        /* who has the key: 0 nobody 1 the process 2 the others 3 the others, and the process is next in the queue */
bit line;        /* others are in the queue behind the process's claim */
byte c;          /* the process's claim: 0 none 1 in use 2 parked 3 asked for: in the queue, or granted and not known to be */
byte since, idle, use; /* ticks since its grant was known, since the last Unlock, of this use */
byte wa, pt;     /* ticks that others wait while it is kept; since the first of them asked last */
bit w=1;         /* the listener is ready */
bit heard;       /* the claim was asked for while a listener was ready */
bit stale;       /* and that was another than the present one: their numbers differ */
bit crowded;     /* others wait, as the process knows */
bit yi;          /* a notice to yield is under way */
byte gr, rp;     /* its grant is under way, by a notice or a reply: 1; 2: which says that others wait */
bit lost;
#ifdef DEAF
#define UP 0
#else
#define UP w
#endif
#ifdef BUG_NUMBER       /* takes another listener for the one that would have had the notice */
#define HEARS (UP && heard)
#else
#define HEARS (UP && heard && !stale)
#endif
#ifdef BUG_NO_LIMIT     /* kept for as long as no notice comes */
#define KEEPS(d) (!crowded && (HEARS || since<(d)))
#else
#define KEEPS(d) (!crowded && since<(HEARS && WT>(d) -> WT : (d)))
#endif
/* a notice that comes while no listener is open is of before it was ready */
#define emit() if :: UP -> yi=1 :: else fi
inline free() { c=0; since=0; idle=0; use=0; heard=0; stale=0; crowded=0; yi=0; gr=0; rp=0; wa=0;
  if :: line -> k=2; line=0; pt=0 :: else -> k=0 fi }
inline asked() { heard=UP; stale=0 }
inline granted(x) { if :: (x) -> crowded=1 :: else fi; c=1; since=0; use=0; idle=0; wa=0; gr=0; rp=0 }
#ifdef BUG_GRANT        /* the notice of a grant does not say that others wait */
#define SAYS(n) 0
#else
#define SAYS(n) ((n)==2)
#endif
#ifdef BUG_REPLY        /* nor does the reply */
#define REPLIES(n) 0
#else
#define REPLIES(n) ((n)==2)
#endif
init { do
 /* the process asks: it is granted the key, or stands in the queue behind those who hold. It polls: likewise, and learns
  * that it was granted meanwhile, or takes over from holders that died */
 :: d_step { k==0 && c==0 -> asked(); c=3; k=1; rp=1 }
 :: d_step { k==2 && c==0 && !line -> asked(); c=3; k=3 }
 :: d_step { k==3 && c==0 -> asked(); c=3 }
 :: d_step { k==3 && c==3 -> asked(); k=1; rp=1+line }
 :: d_step { k==1 && c==3 && rp==0 -> asked(); rp=1+line }
 /* the others who hold release: the key is the process's */
 :: d_step { k==3 && c==3 -> k=1; if :: UP -> gr=1+line :: else fi }
 :: d_step { gr!=0 && w && c==3 -> granted(SAYS(gr)) }
 :: d_step { rp!=0 && c==3 -> granted(REPLIES(rp)) }
 /* the others: join the line, behind the one who holds first of all, or behind the process; poll; give up; hold; release */
 :: d_step { (k==1||k==3) && !line -> line=1; wa=0; pt=0;
#ifndef BUG_JOIN        /* the first waiter does not notify the holder when it joins */
      if :: k==1 -> emit() :: else fi
#endif
    }
 :: d_step { k==1 && line && pt>=POLL -> pt=0;
#ifndef BUG_ONCE        /* nor with its polls */
      emit()
#endif
    }
 :: d_step { line -> line=0; wa=0; pt=0 }
 :: d_step { k==2 -> k=0 }
 /* Unlock: keep it, or release it; Lock of what is kept */
 :: d_step { c==1 -> idle=0; use=0; if :: KEEPS(LINGER) -> c=2 :: else -> free() fi }
 :: d_step { c==2 -> c=1; use=0 }
 :: d_step { c==2 && idle>=LINGER -> free() }
 /* a notice to yield, which may come before the grant is known */
 :: d_step { yi && w -> yi=0;
#ifdef BUG_BEFORE       /* drops a notice that comes before the grant is known */
      if :: c!=3 -> crowded=1 :: else fi;
#else
      crowded=1;
#endif
#ifndef BUG_UNPARK      /* such a notice does not release a lingering key */
      if :: c==2 -> free() :: else fi
#endif
    }
#ifndef RELIABLE
#ifndef BREAKS
#ifdef ONELOST
#define MAYLOSE !lost
#else
#define MAYLOSE 1
#endif
 :: d_step { yi && MAYLOSE -> yi=0; lost=1 }
 :: d_step { gr!=0 && MAYLOSE -> gr=0; lost=1 }
#endif
#if !defined(DEAF) && !defined(ONELOST)
 :: d_step { w -> w=0; yi=0; gr=0 }                /* the listener breaks; a new one has another number */
 :: d_step { !w -> w=1; stale=heard;
#ifndef BUG_READY       /* no bug: without this rule Linger bounds the wait anyway */
      if :: c==2 -> free() :: c==1 -> crowded=1 :: else fi
#endif
    }
#endif
#endif
 /* a tick: notices don't take one where they are reliable, nor where the listener is ready; polls are on time */
 :: d_step { !(c==1&&use>=H) && !(c==2&&idle>=LINGER) && !(yi&&w) && gr==0 && rp==0 && !(k==2) && !(k==1&&line&&pt>=POLL) ->
      if :: since<MAXAGE && (c==1||c==2) -> since=since+1 :: else fi;
      if :: c==1 -> use=use+1 :: c==2 -> idle=idle+1 :: else fi;
      if :: line && pt<POLL -> pt=pt+1 :: else fi;
      if :: line && k==1 && c!=3 -> wa=wa+1; assert(wa<=B) :: else fi }
 od }
