package clockcheck_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/clockcheck"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// A world is a random server and the random delays on the way to it. Its time is the host's
// monotonic clock.
type world struct {
	*rand.Rand
	rate    float64 // the largest possible drift
	drift   float64 // the drift of the server's clock
	offset  time.Duration
	scale   [2]float64    // scales the random delays of requests and answers
	step    time.Duration // the server's clock is stepped by this amount at the time in the next field
	stepped time.Duration
	base    time.Duration // the fraction of a millisecond at which the host's clock begins
	slowest time.Duration // the slowest round trip so far
	now     time.Duration
}

func newWorld(seed uint64) *world {
	w := &world{Rand: rand.New(rand.NewPCG(6, seed))}
	w.rate = []float64{1e-6, 1e-3, 0.05}[w.IntN(3)]
	w.drift = w.rate * (2*w.Float64() - 1)
	w.offset = time.Duration(w.NormFloat64() * float64(time.Hour))
	for i := range w.scale {
		w.scale[i] = []float64{1e3, 1e5, 1e6, 5e7}[w.IntN(4)]
	}
	w.base = time.Duration(w.Int64N(1e6))
	return w
}

func (w *world) server(at time.Duration) time.Duration {
	d := w.offset + at + time.Duration(w.drift*float64(at))
	if w.step != 0 && at >= w.stepped {
		d += w.step
	}
	return d
}

func (w *world) delay(i int) time.Duration { return time.Duration(w.ExpFloat64() * w.scale[i]) }

// sample simulates a request. It returns when it was sent, when it was answered, and the time in the answer.
func (w *world) sample() (sent, got, server time.Duration) {
	w.now += time.Duration(w.ExpFloat64() * 1e6)
	sent = w.now
	read := sent + w.delay(0)
	got = read + w.delay(1)
	clock := w.base + w.server(read)
	cut := clock % time.Millisecond
	if cut < 0 {
		cut += time.Millisecond
	}
	w.now, w.slowest = got, max(w.slowest, got-sent)
	return sent, got, clock - cut - w.base
}

func trials(t *testing.T, n int) int {
	if testing.Short() {
		return n / 20
	}
	return n
}

// The truth is a whole number of nanoseconds here, but the drift is not.
const rounding = 1

func TestBoundHoldsTheTruth(t *testing.T) {
	for seed := range trials(t, 100_000) {
		w := newWorld(uint64(seed))
		trial := clockcheck.Trial{Rate: w.rate}
		for range 1 + w.IntN(12) {
			if moved := trial.Add(w.sample()); moved.Abs() > rounding {
				t.Fatalf("seed %d: a step of %v was seen, but there was none", seed, moved)
			}
		}
		at := w.now + time.Duration(w.ExpFloat64()*1e8)
		offset, bound := trial.At(at)
		if truth := w.server(at) - at; !holds(truth, offset, bound+rounding) {
			t.Fatalf("seed %d: %v ± %v, the truth is %v", seed, offset, bound, truth)
		}
	}
}

// A step of a server's clock by more than 2 ms plus two round trips is detected, and is never reported as larger than
// it was. A step that is not detected shifts the result by at most its own size.
func TestServerStepIsSeenOrSmall(t *testing.T) {
	seen, unseen := 0, 0
	for seed := range trials(t, 100_000) {
		w := newWorld(uint64(seed))
		n := 2 + w.IntN(8)
		first := 1 + w.IntN(n-1) // sample after the step
		w.step = time.Duration(w.NormFloat64() * []float64{1e5, 3e6, 1e9}[w.IntN(3)])
		w.stepped = 1 << 62
		trial := clockcheck.Trial{Rate: w.rate}
		var moved time.Duration
		for i := 0; i < n && moved == 0; i++ {
			if i == first {
				w.stepped = w.now
			}
			moved = trial.Add(w.sample())
		}
		drift := time.Duration(2*w.rate*float64(w.now)) + rounding
		if moved != 0 {
			seen++
			if (moved > 0) != (w.step > 0) || moved.Abs() > w.step.Abs()+rounding {
				t.Fatalf("seed %d: a step of %v or more was seen, but the step was %v", seed, moved, w.step)
			}
			continue
		}
		unseen++
		if most := 2*(time.Millisecond+w.slowest) + drift; w.step.Abs() > most {
			t.Fatalf("seed %d: a step of %v was not seen, although it is more than %v", seed, w.step, most)
		}
		offset, bound := trial.At(w.now)
		if truth := w.server(w.now) - w.now; !holds(truth, offset, bound+w.step.Abs()+rounding) {
			t.Fatalf("seed %d: %v ± %v, the truth is %v, after a step of %v", seed, offset, bound, truth, w.step)
		}
	}
	if seen == 0 || unseen == 0 {
		t.Errorf("%d steps were seen and %d were not, want some of each", seen, unseen)
	}
}

func TestBoundHoldsTheTruthThroughTheDriver(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		client := connect(t, c.options("db:27017"))
		for seed := range trials(t, 200) {
			w := newWorld(uint64(seed))
			begin := time.Now()
			clock := func() time.Time {
				d := time.Since(begin)
				return begin.Add(w.server(d))
			}
			c.change(func() {
				f := c.servers["db:27017"]
				f.clock = clock
				f.out = func() time.Duration { return w.delay(0) }
				f.back = func() time.Duration { return w.delay(1) }
			})
			r := check(t, client, &clockcheck.Options{NoLimit: true, DriftRate: w.rate, Samples: 1 + w.IntN(12)})
			s := r.Servers[0]
			if truth := begin.Add(w.server(s.At.Sub(begin))).Sub(s.At); !holds(truth, s.Offset, s.Bound+rounding) {
				t.Fatalf("seed %d: %v, the truth is %v", seed, r, truth)
			}
		}
	}, "db:27017")
}

// If a request and its answer take half a millisecond each, the error and the bound are small.
func TestErrorIsSmall(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		client := connect(t, c.options("db:27017"))
		source := rand.New(rand.NewPCG(6, 6))
		var errs, bounds []time.Duration
		for range 200 {
			offset := time.Duration(source.Int64N(int64(time.Second)))
			c.change(func() {
				f := c.servers["db:27017"]
				f.clock, f.out, f.back = ahead(offset), always(500*time.Microsecond), always(500*time.Microsecond)
			})
			r := check(t, client, &clockcheck.Options{NoLimit: true})
			errs, bounds = append(errs, (offset-r.Servers[0].Offset).Abs()), append(bounds, r.Servers[0].Bound)
			if r.Servers[0].RTT != time.Millisecond {
				t.Errorf("RTT is %v, want 1ms", r.Servers[0].RTT)
			}
		}
		slices.Sort(errs)
		slices.Sort(bounds)
		median, bound := errs[100], bounds[100]
		t.Logf("median error %v, bound %v", median, bound)
		if most := 100 * time.Microsecond; median > most {
			t.Errorf("the median error is %v, want at most %v", median, most)
		}
		// The limit is half the round trip, an eighth of a millisecond, and a little for the drift.
		if most := 650 * time.Microsecond; bound > most {
			t.Errorf("the median bound is %v, want at most %v", bound, most)
		}
	}, "db:27017")
}

// Samples must be sent at different fractions of a millisecond: otherwise the offset stays uncertain by a whole
// millisecond, however many samples there are.
func TestSamplesResolveTruncation(t *testing.T) {
	for _, delay := range []time.Duration{0, 250 * time.Microsecond, time.Millisecond, 1500 * time.Microsecond, 20 * time.Millisecond} {
		t.Run(delay.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cluster) {
				f := c.servers["db:27017"]
				f.clock, f.out, f.back = ahead(time.Hour+300*time.Microsecond), always(delay), always(delay)
				r := check(t, connect(t, c.options("db:27017")), &clockcheck.Options{NoLimit: true, DriftRate: 1e-9, Samples: 10})
				if most := delay + 100*time.Microsecond; r.Servers[0].Bound > most {
					t.Errorf("%v: the bound is more than %v", r, most)
				}
			}, "db:27017")
		})
	}
}

func TestCheckCosts(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		c.set("rs", "a:27017", "b:27017", "c:27017")
		opt := c.options("a:27017").SetReplicaSet("rs")
		client := connect(t, opt)
		if err := client.Ping(t.Context(), nil); err != nil { // until the client is connected
			t.Fatal(err)
		}
		c.received("a:27017")
		for _, tc := range []struct {
			servers *options.ClientOptions
			want    map[string]int
		}{
			{nil, map[string]int{"a:27017": 8, "b:27017": 0, "c:27017": 0}},
			{opt, map[string]int{"a:27017": 8, "b:27017": 8, "c:27017": 8}},
		} {
			dials := c.dials("b:27017")
			begin := time.Now()
			check(t, client, &clockcheck.Options{Servers: tc.servers})
			most := 20 * time.Millisecond
			if tc.servers != nil {
				most += hesitation
			}
			if took := time.Since(begin); took > most {
				t.Errorf("took %v, want at most %v", took, most)
			}
			for addr, want := range tc.want {
				n := 0
				for _, cmd := range c.received(addr) {
					switch first, _ := cmd.IndexErr(0); first.Key() {
					case "hello":
						n++
					case "endSessions": // the driver sends this when it disconnects
					default:
						t.Errorf("%s got the command %v, want hello only", addr, cmd)
					}
				}
				if n != want {
					t.Errorf("%s got %d hello commands, want %d", addr, n, want)
				}
			}
			if n := c.dials("b:27017") - dials; tc.servers != nil && n != 2 {
				t.Errorf("%d connections were made to another server, want 2", n)
			}
		}
	}, "a:27017", "b:27017", "c:27017")
}

// fast returns a clock that starts d ahead of the host's clock, and runs faster by the given fraction.
func fast(d time.Duration, by float64) func() time.Time {
	begin := time.Now()
	return func() time.Time {
		passed := time.Since(begin)
		return begin.Add(d + passed + time.Duration(by*float64(passed)))
	}
}

// The spread's bound is valid at the time of the last server's answer, although the clocks of the other servers may
// have drifted apart since their own last answers.
func TestSpreadHoldsWhileOthersAreSlow(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		c.set("rs", "a:27017", "b:27017", "slow:27017")
		a, b := fast(5*time.Second, 0.04), fast(-5*time.Second, -0.04)
		c.servers["a:27017"].clock, c.servers["b:27017"].clock = a, b
		c.servers["slow:27017"].out = always(500 * time.Millisecond)
		start := time.Now()
		r := check(t, connect(t, c.options("a:27017")), &clockcheck.Options{
			NoLimit: true, DriftRate: 0.05, Servers: c.options("a:27017", "b:27017", "slow:27017"),
		})
		if took := time.Since(start); took < 4*time.Second || len(r.Servers) != 3 {
			t.Fatalf("measured %d servers in %v, want 3, one of them slowly", len(r.Servers), took)
		}
		if truth := a().Sub(b()); !holds(truth, r.Spread, r.SpreadBound) {
			t.Errorf("%v ± %v, the truth is %v", r.Spread, r.SpreadBound, truth)
		}
	}, "a:27017", "b:27017", "slow:27017")
}

// A server's offset and bound hold at the end of the measurement, even if other servers have answered all requests
// since the server's last sample.
func TestOffsetHoldsAfterTheLastSample(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		f := c.servers["db:27017"]
		client := connect(t, c.options("db:27017"))
		if err := client.Ping(t.Context(), nil); err != nil { // see hesitation
			t.Fatal(err)
		}
		begin, first, clock := time.Now(), bson.NewObjectID(), fast(0, 0.08)
		f.out, f.clock = always(50*time.Millisecond), clock
		f.says = func() bson.D {
			process := first
			if time.Since(begin) > 300*time.Millisecond {
				process = bson.NewObjectID() // each answer comes from another server
			}
			return bson.D{e("isWritablePrimary", true), e("me", "db:27017"), e("setName", "rs"), e("hosts", bson.A{"db:27017"}),
				e("topologyVersion", bson.D{e("processId", process), e("counter", int64(0))})}
		}
		r := check(t, client, &clockcheck.Options{NoLimit: true, DriftRate: 0.09})
		if n := r.Servers[0].Samples; n < 3 || n > 7 {
			t.Fatalf("the result has %d samples, want only those of the first server", n)
		}
		if took := time.Since(begin); took < time.Second {
			t.Fatalf("the check took only %v, too short to reach other servers", took)
		}
		if truth := time.Until(clock()); !holds(truth, r.Servers[0].Offset, r.Servers[0].Bound) {
			t.Errorf("%v ± %v, the truth is %v", r.Servers[0].Offset, r.Servers[0].Bound, truth)
		}
	}, "db:27017")
}
