package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"golang.org/x/sync/errgroup"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
)

// A job describes the sessions of one child.
type job struct {
	Addr, Database string
	TTL            time.Duration
	From, Count    int  // the first session's number, and the number of sessions
	Waiting        int  // sessions with lower numbers wait for a key
	Keys           int  // session i waits for key i modulo Keys
	Shared         bool // all sessions share one client
	Collections    int  // number of collections for notices
}

// run opens the sessions, and prints "idle" and how many bytes of memory each session takes. When proceed is closed,
// the sessions with numbers below j.Waiting begin to wait for their keys. When a session's wait ends, run prints
// "granted", the key, the time, and whether the session has the key. run returns only if it fails to open the sessions.
func (j job) run(proceed <-chan struct{}) error {
	ctx := context.Background()
	t, err := measure.Server(j.Addr, j.Database)
	if err != nil {
		return err
	}
	t.Store.NoticeCollections = j.Collections
	before := inUse()
	session := t.Session
	if j.Shared {
		store, end, err := t.Shared(ctx, perChild+32)
		if err != nil {
			return err
		}
		defer end()
		session = func(_ context.Context, opt dsync.Options) (*dsync.Session, error) { return dsync.New(store, &opt) }
	}
	var (
		mus  = make([]*dsync.Mutex, j.Count)
		keys = make([]string, j.Count)
		open errgroup.Group
	)
	open.SetLimit(16) // opening all at once would overload the server
	for i := range mus {
		open.Go(func() error {
			s, err := session(ctx, dsync.Options{TTL: j.TTL})
			if err != nil {
				return err
			}
			keys[i] = keyName((j.From + i) % j.Keys)
			mus[i] = s.Mutex(keys[i])
			if mus[i].TryLock() {
				return fmt.Errorf("%s is free, want it held by the parent", keys[i])
			}
			return nil
		})
	}
	if err := open.Wait(); err != nil {
		return err
	}
	time.Sleep(time.Second) // until the commands sent after opening are done
	fmt.Println("idle", (inUse()-before)/int64(max(1, j.Count)))
	<-proceed
	var out sync.Mutex
	for i, mu := range mus[:min(max(0, j.Waiting-j.From), len(mus))] {
		go func() {
			err := mu.LockContext(ctx)
			at := time.Now()
			out.Lock()
			defer out.Unlock()
			fmt.Println("granted", keys[i], at.UnixNano(), err == nil)
		}()
		time.Sleep(waitersEvery)
	}
	select {}
}

// inUse returns how many bytes of this process's memory are in use, stacks included.
func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// A runningFleet consists of a fleet's sessions, in child processes, and the session in this
// process that holds their keys.
type runningFleet struct {
	target   *measure.Target
	holder   *dsync.Session
	held     []*dsync.Hold // the holder's holds, by key
	children []*child
	bytes    int64 // memory that each session of the last child takes, clients included
	others   int64 // server connections that existed before the children started
	cancel   context.CancelFunc
}

// perChild is the maximum number of sessions of one child.
const perChild = 250

// startFleet starts the sessions of a fleet. It makes one key for every ten sessions that will
// wait; a session in this process holds all keys.
func (r *report) startFleet(ctx context.Context, size fleetSize, collections int) (_ *runningFleet, err error) {
	c, keys := &runningFleet{}, max(1, size.waiting/10)
	ctx, c.cancel = context.WithCancel(ctx)
	defer func() {
		if err != nil {
			c.close(ctx)
		}
	}()
	if c.target, err = r.lab.target(one); err != nil {
		return nil, err
	}
	c.target.Store.NoticeCollections = collections
	if c.holder, err = c.target.Session(ctx, dsync.Options{}); err != nil {
		return nil, err
	}
	c.held = make([]*dsync.Hold, keys)
	var g errgroup.Group
	g.SetLimit(6)
	for i := range keys {
		g.Go(func() (err error) {
			c.held[i], err = c.holder.Mutex(keyName(i)).Hold(ctx)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if c.others, err = connectionsOf(ctx, c.target); err != nil {
		return nil, err
	}
	for from := 0; from < size.sessions; from += perChild { // one after the other, so that the server is not overloaded
		p, err := startChild(ctx, job{
			Addr: r.lab.uris[one], Database: c.target.DB.Name(), TTL: size.ttl,
			From: from, Count: min(perChild, size.sessions-from),
			Waiting: size.waiting, Keys: keys, Shared: size.shared, Collections: collections,
		})
		if err != nil {
			return nil, err
		}
		c.children = append(c.children, p)
		text, err := p.await(ctx, "idle")
		if err != nil {
			return nil, err
		}
		if _, err := fmt.Sscan(text, &c.bytes); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// waitersEvery is the time between the starts of two waiters.
const waitersEvery = 10 * time.Millisecond

// wait tells the children to wait for the keys, and returns when n sessions are in the queues.
func (c *runningFleet) wait(ctx context.Context, n int) error {
	for _, p := range c.children {
		if err := p.tell(); err != nil {
			return err
		}
		time.Sleep(perChild * waitersEvery)
	}
	for {
		waiting := 0
		for st, err := range admin.New(c.holder).List(ctx, "") {
			if err != nil && (ctx.Err() != nil || !mongo.IsTimeout(err)) { // the server may be too busy with the new waiters
				return err
			}
			waiting += st.Waiting
		}
		if waiting == n {
			return nil
		}
		time.Sleep(500 * time.Millisecond)
	}
}

func (c *runningFleet) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	for _, p := range c.children {
		p.kill()
	}
	c.cancel()
	if c.holder != nil {
		ended, end := context.WithCancel(ctx)
		end()
		c.holder.Close(ended)
	}
	if c.target != nil {
		c.target.Close(ctx)
	}
}
