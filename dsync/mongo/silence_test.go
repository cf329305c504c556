package mongo_test

import (
	"context"
	"fmt"
	"net"
	"regexp"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// A wire is the network between a client and a fake. While it is cut, it drops everything without an error, like a
// firewall that has lost its state, and attempts to connect get no answer. Connections that were open at the cut stay
// silent even after the wire is mended.
type wire struct {
	f *fake

	mu     sync.Mutex
	silent bool
	epoch  int
}

func (w *wire) cut()  { w.set(true) }
func (w *wire) mend() { w.set(false) }

func (w *wire) set(silent bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silent = silent
	w.epoch++
}

func (w *wire) state() (epoch int, silent bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.epoch, w.silent
}

func (w *wire) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	epoch, silent := w.state()
	if silent {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	conn, err := w.f.DialContext(ctx, network, address)
	return &wired{Conn: conn, w: w, epoch: epoch}, err
}

// A wired is a connection over a wire. From the first cut on, it is silent.
type wired struct {
	net.Conn
	w     *wire
	epoch int
}

func (c *wired) dead() bool {
	epoch, _ := c.w.state()
	return epoch != c.epoch
}

func (c *wired) Write(b []byte) (int, error) {
	if c.dead() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *wired) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.dead() {
			return n, err
		}
	}
}

var anyClaim = regexp.MustCompile(`"([0-9A-Za-z-]+\.[0-9]+)"`)

// granting answers like a server on which every key is free.
func granting(c call) bson.D {
	fields := bson.D{e("now", time.Now()), e("at", time.Now()), e("y", "mutex"), e("c", 1), e("t", int64(1024))}
	if claim := anyClaim.FindStringSubmatch(c.cmd.String()); claim != nil {
		fields = append(fields, e("h", bson.A{bson.D{e("a", claim[1]), e("w", 1), e("t", int64(1024))}}))
	}
	return ok(e("value", fields), e("n", 1), e("nModified", 1))
}

// connected returns a session over a wire. Its client has already opened several connections. The fake answers each
// command after a tenth of a second.
func connected(t *testing.T, opt dsync.Options, more ...*options.ClientOptions) (*dsync.Session, *wire) {
	t.Helper()
	f := newFake(t)
	w := &wire{f: f}
	client := options.MergeClientOptions(append([]*options.ClientOptions{
		options.Client().ApplyURI("mongodb://fake:27017/?replicaSet=rs").SetDialer(w),
	}, more...)...)
	s, err := dsyncmongo.Connect(t.Context(), client, "app", &dsyncmongo.Options{PollOnly: true, Session: opt})
	noErr(t, err)
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
		f.End()
		f.Wait()
	})
	f.script(func(c call) bson.D {
		time.Sleep(100 * time.Millisecond)
		return granting(c)
	})
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			mu := s.Mutex(fmt.Sprint("busy ", i))
			mu.Lock()
			defer mu.Unlock()
		})
	}
	wg.Wait()
	if _, open := f.Connections(); open < 8 {
		t.Fatalf("%d connections are open, want at least 8", open)
	}
	return s, w
}

// silence cuts the wire for a while. It reports whether the session loses a lock within one TTL after the silence,
// and how long acquiring another lock takes right after the silence.
func silence(s *dsync.Session, w *wire, before, silent time.Duration) (lost bool, took time.Duration) {
	held, other := s.Mutex("held"), s.Mutex("other")
	held.Lock()
	defer held.Unlock()
	time.Sleep(before)
	w.cut()
	time.Sleep(silent)
	w.mend()
	start := time.Now()
	other.Lock()
	defer other.Unlock()
	took = time.Since(start)
	time.Sleep(s.Options().TTL)
	select {
	case <-held.Lost():
		lost = true
	default:
	}
	return lost, took
}

// If the network silently drops everything for up to two fifths of a TTL, no lock is lost, whenever the silence
// begins. Soon afterwards, locks can be acquired again. With the driver's own time-outs and a TTL of 30 s, 5 s of
// silence were enough to lose every lock. The driver tried the dead connections one after the other, each for the
// length of an attempt.
func TestSilenceCostsNoLock(t *testing.T) {
	for _, ttl := range []time.Duration{10 * time.Second, 30 * time.Second, time.Minute} {
		for i := range 5 {
			before := ttl / 3 * time.Duration(i) / 5
			for _, silent := range []time.Duration{ttl / 15, ttl / 6, ttl / 3, ttl * 2 / 5} {
				inBubble(t, fmt.Sprint("TTL ", ttl, ", silent for ", silent, " after ", before), func(t *testing.T) {
					s, w := connected(t, dsync.Options{TTL: ttl})
					lost, took := silence(s, w, before, silent)
					limit := ttl * 11 / 20 // a command may try up to three dead connections
					if silent >= ttl/3 {
						limit = ttl / 8 // the monitor has noticed the silence, and no dead connection is left
					}
					if lost || took > limit {
						t.Errorf("the lock was lost: %t, and another one took %v; want false, and at most %v", lost, took, limit)
					}
				})
			}
		}
	}
}

// After a silence of half a TTL or more, no dead connection is left. Acquiring a lock then takes a few round trips,
// and the time to open a connection.
func TestSilenceEndsForAll(t *testing.T) {
	for _, silent := range []time.Duration{15 * time.Second, 25 * time.Second, 40 * time.Second, 10 * time.Minute} {
		inBubble(t, fmt.Sprint(silent), func(t *testing.T) {
			s, w := connected(t, dsync.Options{})
			if _, took := silence(s, w, time.Second, silent); took > s.Options().TTL/8 {
				t.Errorf("after the silence, a lock took %v, want at most %v", took, s.Options().TTL/8)
			}
		})
	}
}

// Connect keeps the caller's time-outs, even if they cost locks.
func TestConnectTakesTheCallersTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := options.Client().SetConnectTimeout(30 * time.Second).SetHeartbeatInterval(10 * time.Second).SetMaxConnIdleTime(0)
		s, w := connected(t, dsync.Options{}, own)
		if lost, took := silence(s, w, 5*time.Second, 5*time.Second); !lost {
			t.Errorf("no lock was lost, and another one took %v; want the loss that the driver's defaults cause", took)
		}
	})
}

// Even with a long heartbeat interval, the previous heartbeat's connection is still open when the next
// heartbeat needs it.
func TestConnectKeepsTheHeartbeatsConnection(t *testing.T) {
	for _, interval := range []time.Duration{0, 20 * time.Second} {
		inBubble(t, fmt.Sprint(interval), func(t *testing.T) {
			f := newFake(t)
			s, err := dsyncmongo.Connect(t.Context(), f.ClientOptions(), "app", &dsyncmongo.Options{PollOnly: true, Session: dsync.Options{HeartbeatInterval: interval, TTL: 40 * time.Second}})
			noErr(t, err)
			f.script(granting)
			mu := s.Mutex("k")
			mu.Lock()
			time.Sleep(time.Minute)
			before, _ := f.Connections()
			time.Sleep(10 * time.Minute)
			if after, _ := f.Connections(); after != before {
				t.Errorf("%d connections were made for the heartbeats of 10 minutes, want none", after-before)
			}
			mu.Unlock()
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
			f.End()
			f.Wait()
		})
	}
}
