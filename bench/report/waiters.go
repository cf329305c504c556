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

// A crowdJob is many sessions in one child, each with a client of its own, as a process has, or all with one.
type crowdJob struct {
	From, Sessions int  // their numbers
	Waiting        int  // those with lower numbers come to wait
	Keys           int  // session i waits for key i modulo that
	Shared         bool // by all: the client
	Collections    int  // of notices

	Front string // of "reconnect": the address of a tlsFront
}

// wait has many sessions register and says "idle" and how many bytes of memory each takes. When it is told
// to, it has them wait, and says "granted", a key and the time whenever one is granted its.
func wait(j job) error {
	ctx, c := context.Background(), j.Crowd
	t, err := measure.Server(j.Addr, j.Database)
	if err != nil {
		return err
	}
	t.Store.NoticeCollections = c.Collections
	before := inUse()
	session := t.Session
	if c.Shared {
		store, end, err := t.Shared(ctx, perChild+32)
		if err != nil {
			return err
		}
		defer end()
		session = func(_ context.Context, opt dsync.Options) (*dsync.Session, error) { return dsync.New(store, &opt) }
	}
	var (
		mus  = make([]*dsync.Mutex, c.Sessions)
		keys = make([]string, c.Sessions)
		open errgroup.Group
	)
	open.SetLimit(16) // at a time: all at once would overrun the server
	for i := range mus {
		open.Go(func() error {
			s, err := session(ctx, dsync.Options{TTL: j.TTL})
			if err != nil {
				return err
			}
			keys[i] = keyName((c.From + i) % c.Keys)
			mus[i] = s.Mutex(keys[i])
			if mus[i].TryLock() {
				return fmt.Errorf("%s was free", keys[i])
			}
			return nil
		})
	}
	if err := open.Wait(); err != nil {
		return err
	}
	time.Sleep(time.Second) // what follows the opening
	fmt.Println("idle", (inUse()-before)/int64(max(1, c.Sessions)))
	<-j.told
	var out sync.Mutex
	for i, mu := range mus[:min(max(0, c.Waiting-c.From), len(mus))] {
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

// inUse is how many bytes of this process's memory are in use, stacks included.
func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// A crowded is a server with sessions in children of this process.
type crowded struct {
	target   *measure.Target
	holder   *dsync.Session
	held     []*dsync.Hold // by the holder
	children []*child
	bytes    int64 // that a session takes of its process, with its client
	others   int64 // connections that are not of the children
	cancel   context.CancelFunc
}

// perChild is how many sessions one child has at the most.
const perChild = 250

// startChildren has children do the job, each with some of n sessions, one child after the other. It returns those
// that it has started, even with an error, and what the last one says when its sessions are "idle".
func startChildren(ctx context.Context, n int, j job) (children []*child, idle string, err error) {
	for from := 0; from < n; from += perChild {
		j.Crowd.From, j.Crowd.Sessions = from, min(perChild, n-from)
		c, err := startChild(ctx, j)
		if err != nil {
			return children, "", err
		}
		children = append(children, c)
		if idle, err = c.await(ctx, "idle"); err != nil {
			return children, "", err
		}
	}
	return children, idle, nil
}

// newCrowded has sessions for a tenth as many keys as come to wait.
func (r *report) newCrowded(ctx context.Context, size fleetSize, collections int) (_ *crowded, err error) {
	c, keys := &crowded{}, max(1, size.waiting/10)
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
	st, err := statusOf(ctx, c.target)
	if err != nil {
		return nil, err
	}
	c.others = st.Connections.Current
	var text string
	c.children, text, err = startChildren(ctx, size.sessions, job{
		Do: "wait", Addr: r.lab.uris[one], Database: c.target.DB.Name(), TTL: size.ttl,
		Crowd: crowdJob{Waiting: size.waiting, Keys: keys, Shared: size.shared, Collections: collections},
	})
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Sscan(text, &c.bytes); err != nil {
		return nil, err
	}
	return c, nil
}

// waitersEvery is the time from one session's first wait to the next one's.
const waitersEvery = 10 * time.Millisecond

// wait has all n sessions wait.
func (c *crowded) wait(ctx context.Context, n int) error {
	for _, p := range c.children {
		if err := p.tell(); err != nil {
			return err
		}
		time.Sleep(perChild * waitersEvery)
	}
	for {
		waiting := 0
		for st, err := range admin.New(c.holder).List(ctx, "") {
			if err != nil && (ctx.Err() != nil || !mongo.IsTimeout(err)) { // the server may be too busy with those that come
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

func (c *crowded) close(ctx context.Context) {
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
