//go:build linux || darwin || freebsd

package main

import (
	"context"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/leader"
)

// A leadership that is lost is campaigned for again; the end of the command is that of
// elect, and its status.
func TestElectCampaignsAgain(t *testing.T) {
	store := dsynctest.NewMemory()
	const script = `
		test $LEASEHOLD_KEY = e && test $LEASEHOLD_TOKEN -gt 0 || exit 9
		test $LEASEHOLD_TERM = 2 && exit 5
		echo "term $LEASEHOLD_TERM"
		while :; do sleep 0.01; done`
	out, end := start(t.Context(), store, "elect", "--ttl", "6s", "--drain", "1s", "--name", "me", "e", "--", "sh", "-c", script)
	eventually(t, "the first term began", func() bool { return strings.Contains(out.take(), "term 1") })
	s := session(t, store)
	e, err := leader.New(s, "e", nil)
	if err != nil {
		t.Fatal(err)
	}
	if l, err := e.Leader(t.Context()); err != nil || l.Name != "me" || l.Term != 1 {
		t.Errorf("package leader sees %+v, %v, want me in term 1", l, err)
	}
	go s.Break(context.Background(), "e")
	got := <-end
	if got.status != 5 || !strings.HasPrefix(got.err, `leasehold: "e" was lost, and the command stopped: `) || strings.Count(got.err, "\n") != 1 {
		t.Errorf("%+v, want status 5 and one line about the loss", got)
	}
	free(t, store, "e")
}

// Who is asked to end while the command is stopped does not campaign again.
func TestElectEndsWhenTold(t *testing.T) {
	store := dsynctest.NewMemory()
	out, end := start(t.Context(), store, "elect", "--ttl", "6s", "--drain", "1s", "e", "--",
		"sh", "-c", `trap 'echo stopping' TERM; echo ready; while :; do sleep 0.01; done`)
	eventually(t, "the command runs", func() bool { return strings.Contains(out.take(), "ready") })
	go session(t, store).Break(context.Background(), "e")
	eventually(t, "the command is being stopped", func() bool { return strings.Contains(out.take(), "stopping") })
	syscall.Kill(os.Getpid(), syscall.SIGTERM)
	if got := <-end; got.status != exitLost {
		t.Errorf("%+v, want status %d", got, exitLost)
	}
	free(t, store, "e")
}
