/* An observer of a key sees its last change.
 *
 * Stands for:
 *   internal/engine: observe.go (observe, watch)
 *   internal/core: outbox.go (notifyChange, changed, messageAnswered), listener.go (listenerReady)
 *   dsync/mongo: listen.go (listen, tailKeys), tail.go (open, reopen), observe.go (mark, marking), notice.go (change, changed),
 *     release.go (releaseAlone), shapes_short.go (acquiring, releasing)
 * An observer reads, waits for a change, and reads again; its channel holds one change. If the key changes while a notice
 * is under way, another notice follows. A listener opens its cursor, then marks the keys as observed, and then is ready. Replies
 * show the mark, and commands whose reply does not show it change nothing if there is one.
 * Abstracts from: what the changes are (each gives the record a greater number); who may read; that a mark ends ten minutes
 * after it was last renewed (a running listener renews it in time); cursors that break (notices.pml).
 *
 * Checked (LTL, weak fairness): the last change is read. RELIABLE: even without the poll, if no reply or notice is lost.
 */
#ifndef NP
#define NP 2           /* processes that change the key */
#endif
#ifndef N
#define N 2            /* changes of each */
#endif
byte ver, seen, made[NP];
bit mark;              /* the record says that it is observed */
byte ls;               /* the listener: 0 none 1 open 2 marked 3 ready */
bit changed;           /* there is reason to read */
bit in;                /* a notice that the cursor has before it: one stands for all */
bit due[NP];           /* the reply is there, and says that a notice is due */
byte snd[NP];          /* the sender: 0 none 1 is to send 2 has sent, and waits a moment */
bit more[NP];          /* another change meanwhile */
#ifdef RELIABLE
#define LOSES 0
#define POLLS 0
#else
#define LOSES 1
#ifdef BUG_NOPOLL       /* a lost notice */
#define POLLS 0
#else
#define POLLS 1
#endif
#endif
#ifdef BUG_BLIND        /* a command whose reply does not show the mark changes the key anyway */
#define BLIND 1
#else
#define BLIND (!mark)
#endif
proctype changer(byte p) {
  do
  :: made[p]<N ->
     if
     :: d_step { ver++; made[p]++; due[p]=mark }     /* its reply tells of the mark */
     :: d_step { BLIND -> ver++; made[p]++ }         /* its reply tells nothing */
     fi;
     if
     :: d_step { LOSES -> due[p]=0 }
     :: d_step { due[p] -> due[p]=0;
          if :: snd[p]==0 -> snd[p]=1
             :: else ->
#ifndef BUG_MERGES      /* a change while a notice is being sent causes no second one */
                more[p]=1
#else
                skip
#endif
          fi }
     :: d_step { !due[p] -> skip }
     fi
  :: else -> break
  od }
proctype sender(byte p) { end: do
  :: d_step { snd[p]==1 -> if :: ls>0 -> in=1 :: else fi; snd[p]=2 }
  :: d_step { LOSES && snd[p]==1 -> snd[p]=2 }
  :: d_step { snd[p]==2 -> if :: more[p] -> more[p]=0; snd[p]=1 :: else -> snd[p]=0 fi }
  od }
inline ready() { ls=3;
#ifndef BUG_NO_READ     /* nobody reads when the listener is ready */
  changed=1
#endif
}
proctype listener() { end: do
  :: d_step { ls==0 -> in=0; ls=1 }
#ifdef BUG_MARKS_LATE   /* reports ready before the key is marked */
  :: d_step { ls==1 -> ready() }
  :: d_step { ls==3 && !mark -> mark=1 }
#else
  :: d_step { ls==1 -> mark=1; ls=2 }
  :: d_step { ls==2 -> ready() }
#endif
  :: d_step { ls==3 && in -> in=0; changed=1 }
  od }
proctype observer() { byte v;
  do
  :: v=ver;
#ifdef BUG_CLEARS        /* forgets a notice that comes during a read */
     d_step { seen=v; changed=0 }
#else
     seen=v
#endif
     ;
end: if
     :: d_step { changed ->
#ifndef BUG_CLEARS
          changed=0
#else
          skip
#endif
        }
     :: POLLS && seen!=ver -> skip      /* or for nothing */
     fi
  od }
init { atomic { byte p; do :: p<NP -> run changer(p); run sender(p); p++ :: else -> break od; run listener(); run observer() } }
ltl last { <> (seen==NP*N) }
