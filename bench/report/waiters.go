package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
)

// A crowdJob is many sessions in one child, all with one client, each of which listens on
// a connection of its own.
type crowdJob struct {
	From, Sessions int // their numbers
	Keys           int // session i waits for key i modulo that
	Collections    int // of notices
}

// wait has many sessions wait, says "ready" and how many bytes of memory each takes when
// all of them are in the queue, and "granted", a key and the time whenever one is granted its.
func wait(j job) error {
	ctx, c := context.Background(), j.Crowd
	t, err := measure.Server(j.Addr, j.Database)
	if err != nil {
		return err
	}
	t.Store.NoticeCollections = c.Collections
	store, end, err := t.Shared(ctx)
	if err != nil {
		return err
	}
	defer end()
	var (
		before = inUse()
		open   errgroup.Group
		out    sync.Mutex
	)
	open.SetLimit(16) // at a time: all at once would overrun the server
	for i := c.From; i < c.From+c.Sessions; i++ {
		open.Go(func() error {
			s, err := dsync.New(store, &dsync.Options{TTL: j.TTL})
			if err != nil {
				return err
			}
			mu := s.Mutex(keyName(i % c.Keys))
			go func() {
				err := mu.LockContext(ctx)
				at := time.Now()
				out.Lock()
				defer out.Unlock()
				fmt.Println("granted", mu.Key(), at.UnixNano(), err == nil)
			}()
			return queued(ctx, store, mu.Key(), s)
		})
	}
	if err := open.Wait(); err != nil {
		return err
	}
	time.Sleep(time.Second) // what follows the opening
	out.Lock()
	fmt.Println("ready", (inUse()-before)/int64(max(1, c.Sessions)))
	out.Unlock()
	select {}
}

// queued waits until the session is in the key's queue.
func queued(ctx context.Context, store driver.Store, key string, s *dsync.Session) error {
	for {
		if id := s.ID(); id != "" {
			st, err := store.Load(ctx, key, 1000)
			if err != nil {
				return err
			}
			for _, w := range st.WaitersAhead {
				if w.Session == id {
					return nil
				}
			}
			if st.Waiting > len(st.WaitersAhead) {
				return nil // it may be one of those behind them
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// inUse is how many bytes of this process's memory are in use, stacks included.
func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// A crowded is a server with sessions that wait in children of this process.
type crowded struct {
	target   *measure.Target
	holder   *dsync.Session
	held     []*dsync.Mutex // by the holder
	children []*child
	bytes    int64 // that a session takes of its process
	cancel   context.CancelFunc
}

// perChild is how many sessions one child has at the most.
const perChild = 250

// newCrowded has n sessions wait for as many keys, or for fewer.
func (r *report) newCrowded(ctx context.Context, n, keys, collections int) (_ *crowded, err error) {
	c := &crowded{}
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
	var g errgroup.Group
	g.SetLimit(6)
	for i := range min(n, keys) {
		mu := c.holder.Mutex(keyName(i))
		c.held = append(c.held, mu)
		g.Go(func() error { return mu.LockContext(ctx) })
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for from := 0; from < n; from += perChild {
		p, err := startChild(ctx, job{
			Do: "wait", Addr: r.lab.uris[one], Database: c.target.DB.Name(),
			Crowd: crowdJob{From: from, Sessions: min(perChild, n-from), Keys: keys, Collections: collections},
		})
		if err != nil {
			return nil, err
		}
		c.children = append(c.children, p)
		text, err := p.await(ctx, "ready") // one after the other
		if err != nil {
			return nil, err
		}
		if _, err := fmt.Sscan(text, &c.bytes); err != nil {
			return nil, err
		}
	}
	return c, nil
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
