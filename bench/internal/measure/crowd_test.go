package measure_test

import (
	"testing"
	"testing/synctest"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
)

func TestCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := measure.Memory()
		crowd, err := measure.NewCrowd(t.Context(), to, 20)
		if err != nil {
			t.Fatal(err)
		}
		defer crowd.Close()
		before := to.Commands()
		for want := 18; want >= 0; want-- {
			if _, err := crowd.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := crowd.Left(); got != want {
				t.Errorf("%d sessions are waiting, want %d", got, want)
			}
		}
		if got := to.Commands() - before; got != 2*19 {
			t.Errorf("%d commands for 19 releases, want one release and one notice each", got)
		}
	})
}
