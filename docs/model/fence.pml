/* Fence: a document refuses the late writes of an old holder.
 *
 * Stands for:
 *   dsync/mongo/fence: collection.go (unseenBy, RaiseToken, DeleteOne, Upsert), stamp.go (stamp, stampOperators)
 * A write applies only to a document that has seen no greater token, and leaves its own token there.
 * Abstracts from: the lock (there are two holders, one after the other, with the tokens 1 and 2; the first was frozen, and its
 * writes may come at any time, and again); which of several matching documents is written.
 *
 * Checked: once the document has the newer holder's token, no write of the older holder is applied. If the newer holder reads
 * the document and then writes, no write in between is lost, because it raises the token first.
 */
byte tok, val;      /* of the document: the token it has seen; how often it was written */
bit exists=1, forgot;
byte st;            /* the newer holder: 0 begins 1 raised 2 has read 3 has written 4 has deleted */
byte read, wrote1;  /* what it read; writes of the older one that were applied */
bit seen2;          /* a write of the newer one was applied */
#ifdef BUG_FILTER
#define PASSES(t) 1
#else
#define PASSES(t) (tok<=(t))
#endif
inline write(t) {
  if :: exists && PASSES(t) -> assert(!(seen2 && (t)==1));
#ifndef BUG_STAMP
        tok=t;
#endif
        if :: (t)==2 -> seen2=1 :: else fi
     :: else fi }
init { do
 /* the older holder's write comes: at most twice, that is enough */
 :: d_step { wrote1<2 && exists && PASSES(1) -> write(1); val=val+1; wrote1=wrote1+1 }
#ifdef LIMIT_UPSERT  /* documented: with a document goes the token it has seen */
 :: d_step { wrote1<2 && !exists -> exists=1; tok=1; wrote1=wrote1+1; assert(!seen2) }
#endif
 /* the newer one: raises, reads, writes what it read and one more */
#ifdef BUG_NORAISE
 :: d_step { st==0 -> st=1 }
#else
 :: d_step { st==0 -> write(2); st=1 }
#endif
 :: d_step { st==1 -> read=val; st=2 }
 :: d_step { st==2 -> assert(val==read); write(2); val=read+1; st=3 }
#if defined(DELETES) || defined(LIMIT_UPSERT)
 :: d_step { st==3 && exists && PASSES(2) -> exists=0; tok=0; st=4 }
#endif
 :: st>=3 && wrote1==2 -> break
 :: st>=3 && !(exists && PASSES(1)) -> break
 od }
