package agent

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/statusjson"
	"github.com/leasehold-go/leasehold/leader"
)

// campaign sends a line for each term of the client, until the client goes.
func (h *Handler) campaign(w http.ResponseWriter, r *http.Request, q query) {
	ctx, out := r.Context(), newStream(w, h.beat)
	want, err := engine.Candidate(q.key, q.preference)
	if err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	want.Value = q.value
	for {
		hold, err := h.elected(ctx, out, want)
		switch {
		case err != nil && out.begun:
			_ = out.send(errorLine{Error: err.Error()})
			return
		case err != nil:
			h.failed(ctx, w, q.key, err)
			return
		case !h.keep(ctx, out, h.add(hold, 0), q):
			return
		}
	}
}

// elected sends signs of life until the client is elected. After a term that was lost, that is at the earliest when the
// client has stopped or its grace is over: only then is there room for another hold of the key in this process.
func (h *Handler) elected(ctx context.Context, out *stream, want engine.Want) (hold *engine.Hold, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	decided := make(chan struct{})
	go func() {
		defer close(decided)
		hold, err = h.s.Hold(ctx, want)
	}()
	beat := time.NewTicker(h.beat)
	defer beat.Stop()
	for {
		select {
		case <-decided:
			return hold, err
		case <-beat.C:
			if out.send(left{}) != nil {
				cancel() // if the client is elected all the same, keep finds that it has gone
			}
		}
	}
}

// A leaderView is the JSON form of a [leader.Leader].
type leaderView struct {
	Term    int64           `json:"term"`
	Token   int64           `json:"token"`
	Name    string          `json:"name"`
	Host    string          `json:"host"`
	PID     int             `json:"pid"`
	Session string          `json:"session"`
	Since   statusjson.Time `json:"since"`
	statusjson.Value
}

func newLeaderLine(l leader.Leader) leaderLine {
	if l.Session == "" {
		return leaderLine{}
	}
	return leaderLine{&leaderView{
		l.Term, l.Token, l.Name, l.Host, l.PID, l.Session, statusjson.Time{Time: l.Since}, statusjson.NewValue(l.Value),
	}}
}

// leader sends who leads.
func (h *Handler) leader(w http.ResponseWriter, r *http.Request, q query) {
	e, err := leader.New(h.owner, q.key, nil)
	if err != nil {
		refuse(w, statusOf(err), err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.beat)
	defer cancel()
	l, err := e.Leader(ctx)
	if err != nil && !errors.Is(err, leader.ErrNoLeader) {
		refuse(w, statusOf(err), err)
		return
	}
	answer(w, http.StatusOK, newLeaderLine(l))
}

// leaders sends who leads, and each change, until the client goes or the session is closed.
func (h *Handler) leaders(w http.ResponseWriter, r *http.Request, q query) {
	e, err := leader.New(h.owner, q.key, nil)
	if err != nil {
		refuse(w, statusOf(err), err)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	out, seen := newStream(w, h.beat), e.Observe(ctx)
	beat := time.NewTicker(h.beat)
	defer beat.Stop()
	for err == nil {
		select {
		case l, ok := <-seen:
			if !ok {
				return
			}
			err = out.send(newLeaderLine(l))
		case <-beat.C:
			err = out.send(left{})
		}
	}
}
