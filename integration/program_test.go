package integration_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/program"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

// The random programs of package program also run on a server instead of the in-memory store.
// They run in real time and without cut links, several at a time, each on its own keys.
func TestPrograms(t *testing.T) {
	const atOnce = 16
	programs := testkit.Rounds(24, 48)
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		begin := time.Now()
		t.Cleanup(func() { lab.Note(t, "%d programs in %.1f s", programs, time.Since(begin).Seconds()) })
		client := r.Client(t)
		room := make(chan struct{}, atOnce)
		for i := range programs {
			p := program.Decode(program.Random(rand.New(rand.NewPCG(lab.Seed, uint64(i))))) // the same on every server
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				room <- struct{}{}
				defer func() { <-room }()
				defer func() {
					// Print a panic at once. Otherwise the test would first clean up the server, and failures of
					// other programs would hide the panic.
					if e := recover(); e != nil {
						t.Error(e)
					}
				}()
				program.Run(t, program.World{
					Prefix: fmt.Sprintf("p%d.", i),
					Skew:   s.Skew,
					Open: func(_ int, set program.Setting, opt dsync.Options) *dsync.Session {
						s, err := dsyncmongo.Open(t.Context(), client.Database(r.DB),
							&dsyncmongo.Options{Session: opt, PollOnly: set.Polling})
						if err != nil {
							panic(err) // not t.Fatal, because this can be any goroutine of the program
						}
						return s
					},
				}, p)
			})
		}
	})
}
