package mongo_test

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/leasehold-go/leasehold/dsync"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// On a standalone, every write with w: "majority" also asks to wait for the journal. A replica set waits for the
// journal even without being asked. If the server has no journal, the log warns once of the consequences.
func TestStandaloneWritesWaitForTheJournal(t *testing.T) {
	for name, tc := range map[string]struct {
		hello     func(bson.D) bson.D
		unjournal bool   // the server has no journal
		wait      string // how many writes ask for the journal: "all", "one" or "" for none
		warnings  int
	}{
		"replica set":                   {func(d bson.D) bson.D { return d }, false, "", 0},
		"standalone":                    {asStandalone, false, "all", 0},
		"mongos":                        {asMongos, false, "", 0},
		"standalone without a journal":  {asStandalone, true, "one", 1},
		"another product, a standalone": {func(d bson.D) bson.D { return without("topologyVersion")(asStandalone(d)) }, false, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				f.hello = tc.hello(f.hello)
				f.script(func(c call) bson.D {
					if _, asked := c.cmd.Lookup("writeConcern", "j").BooleanOK(); asked && tc.unjournal {
						return bson.D{e("ok", 0), e("code", 2), e("codeName", "BadValue"), e("errmsg", "cannot use 'j' option when a host does not have journaling enabled")}
					}
					return honest(c)
				})
				var log strings.Builder
				client := f.anyClient()
				_, err := dsyncmongo.NewStore(t.Context(), client.Database("app"), &dsyncmongo.Options{Session: dsync.Options{
					Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})),
				}})
				if err != nil {
					t.Fatal(err)
				}
				writes, waited := 0, 0
				for _, c := range f.took() {
					if w, _ := c.cmd.Lookup("writeConcern", "w").StringValueOK(); w != "majority" {
						continue
					}
					writes++
					if j, _ := c.cmd.Lookup("writeConcern", "j").BooleanOK(); j {
						waited++
					}
				}
				if want := map[string]int{"all": writes, "one": 1}[tc.wait]; waited != want || writes < 10 {
					t.Errorf("%d of %d writes waited for the journal, want %d of at least 10", waited, writes, want)
				}
				if n := strings.Count(log.String(), "journal"); n != tc.warnings {
					t.Errorf("%d warnings, want %d:\n%s", n, tc.warnings, &log)
				}
			})
		})
	}
}
