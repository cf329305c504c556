/* A claim that is kept beyond its use: Linger, Yield, and how long others wait for it.
 *
 * Stands for: dsync/handover.go (watching, keeps, pass, lapse, unpark), queue.go admit (a parked hold is used again),
 * watch.go event (EventReady, EventYield) and ask.go (h.watched: the number of the watch that was ready when the request
 * was sent); dsync/mongo/shapes_settle.go (r: who is to yield, written when the line comes to be, and when a claim is
 * granted while others are in line).
 * Abstracts from: the store's other commands, losses (handover.pml, grace.pml) and who the others are: one process keeps
 * the key, others hold it at the start, wait for it, get it, and give it back. Time is in ticks; a use lasts at most H.
 *
 * Checked: a process that stands in line while the key is kept waits at most
 *   RELIABLE  (no event is missed, none takes a tick)         H
 *   BREAKS    (the watch breaks, and this is noticed)          max(TURN, LINGER) + H + LINGER
 *   else      (events are missed that nobody notices)          max(WT, TURN, LINGER) + H + LINGER
 *   NOWATCH   (the store can't push)                           max(TURN, LINGER) + H + LINGER
 */
#define H 1
#define TURN 1
#define LINGER 2
#define WT 6                  /* watchedTurn */
#define MAXAGE 12
#ifdef RELIABLE
#define B H
#elif defined(BREAKS) || defined(NOWATCH)
#define B (LINGER+H+LINGER)
#else
#define B (WT+H+LINGER)
#endif
byte k=3;        /* who has the key: 0 nobody 1 the process 2 the others 3 the others, and the process is next in line */
bit line;        /* others are in line behind the process's claim */
byte c;          /* the process's claim: 0 none 1 in use 2 parked 3 in line */
byte since, idle, use; /* ticks since its grant, since the last Unlock, of this use */
byte wa;         /* ticks that others wait while it has the key */
bit w=1;         /* the watch is ready */
bit watched;     /* the claim was asked for while a watch was ready */
bit stale;       /* and that was another than the present one: their numbers differ */
bit yielded, ev; /* others wait, as it knows; the event is under way */
#ifdef NOWATCH
#define UP 0
#else
#define UP w
#endif
#ifdef BUG_NUMBER
#define WATCHING (UP && watched)
#else
#define WATCHING (UP && watched && !stale)
#endif
#ifdef BUG_NO_LIMIT
#define KEEPS(d) (!yielded && (WATCHING || since<(d)))
#else
#define KEEPS(d) (!yielded && since<(WATCHING && WT>(d) -> WT : (d)))
#endif
#define emit() if :: UP -> ev=1 :: else fi
inline free() { c=0; since=0; idle=0; use=0; watched=0; stale=0; yielded=0; ev=0; wa=0;
  if :: line -> k=2; line=0 :: else -> k=0 fi }
inline granted() { k=1; c=1; since=0; use=0; idle=0;
#ifndef BUG_R_GRANT
  if :: line -> emit() :: else fi
#endif
}
init { do
 /* the process asks, alone or behind the others who hold */
 :: d_step { k==0 -> watched=UP; stale=0; granted() }
 :: d_step { k==2 && c==0 && !line -> c=3; k=3; watched=UP; stale=0 }
 /* the others: join the line, release, get it (free) */
 :: d_step { (k==1||k==3) && !line -> line=1; wa=0;
#ifndef BUG_R_JOIN
      if :: k==1 -> emit() :: else fi
#endif
    }
 :: d_step { k==2 -> k=0 }
 :: d_step { k==3 && c==0 -> c=3; watched=UP; stale=0 }
 :: d_step { k==3 && c==3 -> granted() }
 /* Unlock: keep it, or release it; Lock of what is kept */
 :: d_step { c==1 -> idle=0; use=0; if :: KEEPS(LINGER) -> c=2 :: else -> free() fi }
 :: d_step { c==2 -> c=1; use=0 }
 :: d_step { c==2 && idle>=LINGER -> free() }
 /* events */
 :: d_step { ev && w -> ev=0; yielded=1;
#ifndef BUG_UNPARK
      if :: c==2 -> free() :: else fi
#endif
    }
#ifndef RELIABLE
#ifndef BREAKS
 :: d_step { ev -> ev=0 }                          /* missed */
#endif
#ifndef NOWATCH
 :: d_step { w -> w=0; ev=0 }                      /* the watch breaks; a new one has another number */
 :: d_step { !w -> w=1; stale=watched; if :: c==2 -> free() :: else fi }
#endif
#endif
 /* a tick: events don't take one where they are reliable, nor where the watch is up */
 :: d_step { !(c==1&&use>=H) && !(c==2&&idle>=LINGER) && !(ev&&w) && !(k==2) ->
      if :: since<MAXAGE && (c==1||c==2) -> since=since+1 :: else fi;
      if :: c==1 -> use=use+1 :: c==2 -> idle=idle+1 :: else fi;
      if :: line && k==1 -> wa=wa+1; assert(wa<=B) :: else fi }
 od }
