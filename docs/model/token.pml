/* Tokens: grants, hand-offs in a process, clean-up of idle records, a clock that goes back.
 *
 * Stands for:
 *   dsync/mongo: shapes_settle.go (settle), short.go (after, acquireFree, maxLag), shapes_short.go (acquiring, handingOver),
 *     sweep.go (idleKeys), resize.go (resizing)
 *   dsync/driver: limits.go (TokenStep, TokenRoom)
 *   internal/core: hold.go (mayReuse, handOff)
 *   internal/model: edit.go (settle), record.go (Idle)
 * After the grant of a claim with Yield that takes the whole key, the record's token is ahead by TokenRoom - TokenStep. With
 * RESIZE, a Resize makes a record without a token.
 * Abstracts from: who holds the key; several grants of one write (here each is a grant). STEP stands for TokenStep, ROOM for
 * TokenRoom, a tick for a millisecond, R for the retention, BACK for how far the clock may go back at a fail-over, LAG for
 * maxLag: how far a short Acquire may be behind the clock and still have an effect.
 *
 * Checked: every token is greater than all before it.
 */
#define STEP 2
#define ROOM 4
#ifndef R
#define R 2
#endif
#ifndef BACK
#define BACK 1
#endif
#ifndef LAG
#define LAG 0
#endif
#ifndef ENDTIME
#define ENDTIME 12
#endif
#define MAXT 60
byte now=BACK+1, sk;       /* the clock of the first server, and by how much the present one's is behind it */
byte t, at; bit exists;    /* the record: the last token with its room, the time of the last grant */
byte held, cur, last, mx;  /* 1: a part or a plain hold, 2: all of the key, with Yield; its token, the last in its room */
#define NOW (now-sk)
#ifdef BUG_CLOCK_ONLY
#define NEXT (NOW*STEP)
#elif defined(BUG_NO_CLOCK)
#define NEXT (t+STEP)
#else
#define NEXT ((t+STEP)>(NOW*STEP) -> (t+STEP) : (NOW*STEP))
#endif
#ifdef BUG_NO_ROOM
#define LEFT(y) 0
#else
#define LEFT(y) ((y) -> ROOM-STEP : 0)
#endif
#ifdef BUG_ROOM_OF_PART
#define LAST(y) (cur+ROOM-1)
#else
#define LAST(y) ((y) -> cur+ROOM-1 : cur+STEP-1)
#endif
#ifdef BUG_SWEEP_BY_USE
#define IDLE (at+R<=NOW)
#else
#define IDLE (NOW>=R && t<=(NOW-R)*STEP && at+R<=NOW)
#endif
inline got(x) { assert((x)>mx); mx=x }
inline grant(y) { exists=1; cur=NEXT; t=cur+LEFT(y); at=NOW; held=1+y; last=LAST(y); got(cur) }
/* The short commands that grant: a free key, one without a record included, or, as a plain hold is released, one that is
 * handed over to the first in the queue.
 * The client chooses the token: at least a step after a last one that it knows, and at most what NEXT is then, as what
 * it knows of the clock may lag; or by the clock alone, of a key of which it knows nothing. One that was sent may arrive
 * at any later time, and again. Of the condition of a hand-over, that t is the token of its hold, the model has what
 * follows from it: t is a step behind. */
byte sent;                 /* the token of one that was sent, 0 if none was */
#ifdef BUG_SHORT_TOKEN
#define WRITTEN t
#else
#define WRITTEN cur
#endif
#ifdef BUG_SHORT_SAME
#define AHEAD 0
#else
#define AHEAD STEP
#endif
#ifdef BUG_SHORT_LATE
#define NONELATER 1
#else
#define NONELATER (t+AHEAD<=sent)
#endif
#ifdef BUG_SHORT_ROOM
#define SIMPLE(y) 1
#else
#define SIMPLE(y) (!(y))
#endif
#ifdef BUG_SHORT_OLD
#define RECENT 1
#else                      /* without t the clock must do */
#define RECENT (t>0 || sent+LAG*STEP>=NOW*STEP)
#endif
#define SHORT(y) (sent && held<2 && t<MAXT && NONELATER && RECENT && SIMPLE(y))
inline short_grant(y) { exists=1; cur=sent; t=WRITTEN; at=(NOW>LAG -> NOW-LAG : 0); held=1+y; last=LAST(y); got(cur) }
init { do
 :: d_step { !held && t<MAXT -> grant(0) }
 :: d_step { !held && t<MAXT -> grant(1) }
 :: atomic { exists && t<MAXT -> sent=t+AHEAD; do :: sent<NEXT -> sent++ :: break od }
 :: d_step { sent=NOW*STEP }
 :: d_step { SHORT(0) -> short_grant(0) }
 :: d_step { SHORT(1) -> short_grant(1) }
 :: d_step { held==1 && t<MAXT -> grant(0) }              /* another part, beside the first */
#ifdef BUG_SAME_TOKEN
 :: d_step { held && cur<last -> got(cur) }
#else
 :: d_step { held && cur<last -> cur++; got(cur) }        /* handed on in the process */
#endif
 :: d_step { held -> held=0; cur=0; last=0 }
 :: d_step { exists && !held && IDLE -> exists=0; t=0; at=0 }
#ifdef RESIZE
 :: d_step { !exists -> exists=1; at=NOW }
#endif
 :: d_step { now<ENDTIME -> now++ }
 :: d_step { sk==0 -> sk=BACK }
 :: d_step { sk>0 -> sk=0 }
 od }
