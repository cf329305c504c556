package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/statusjson"
)

// A held is a hold of a client, from its grant until the client is done or the grace of a lost hold is over.
type held struct {
	*engine.Hold
	id   string
	tick int64       // of a run; 0: not a run
	done atomic.Bool // the client has said so
}

// maxLeft is the longest time for which a sign of life lets the client rely on its hold, and less than the time in which
// TCP ends a connection without a client. So a client that is cut off gives up before its hold is
// released.
const maxLeft = 30 * time.Second

func (h *Handler) lock(w http.ResponseWriter, r *http.Request, q query) {
	h.take(w, r, q, q.lockWant())
}

func (h *Handler) once(w http.ResponseWriter, r *http.Request, q query) {
	want := engine.Whole(q.key, driver.KindOnce)
	want.Tick = engine.OnceTick
	h.take(w, r, q, want)
}

func (h *Handler) periodic(w http.ResponseWriter, r *http.Request, q query) {
	if q.tick == 0 {
		refuse(w, http.StatusBadRequest, errors.New("tick is missing; it is the time for which the run is scheduled, such as tick=2026-11-01T02:00:00Z"))
		return
	}
	want := engine.Whole(q.key, driver.KindPeriodic)
	want.Tick = q.tick
	h.take(w, r, q, want)
}

// take acquires want and keeps it for as long as the response is open.
func (h *Handler) take(w http.ResponseWriter, r *http.Request, q query, want engine.Want) {
	out := newStream(w, h.beat)
	hold, err := h.acquire(r.Context(), want, q.wait)
	var over *engine.SealedError
	switch {
	case errors.As(err, &over):
		_ = out.send(doneLine{Done: want.Key, Tick: tickTime(want.Kind, over.Tick), Value: statusjson.NewValue(over.Result())})
	case err != nil:
		h.failed(r.Context(), w, want.Key, err)
	default:
		h.keep(r.Context(), out, h.add(hold, want.Tick), q)
	}
}

// tickTime returns a tick for people, or "" if the kind has no ticks of its own.
func tickTime(kind driver.Kind, tick int64) statusjson.Time {
	if kind != driver.KindPeriodic {
		return statusjson.Time{}
	}
	return statusjson.Time{Time: time.UnixMilli(tick)}
}

// acquire waits for want as long as the request allows.
func (h *Handler) acquire(ctx context.Context, want engine.Want, wait time.Duration) (*engine.Hold, error) {
	switch wait {
	case 0:
		want.Try = true
		return h.s.Hold(ctx, want)
	case forever:
		return h.s.Hold(ctx, want)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, wait, errWaitOver)
	defer cancel()
	hold, err := h.s.Hold(ctx, want)
	if err != nil && context.Cause(ctx) == errWaitOver {
		return nil, errWaitOver
	}
	return hold, err
}

// errWaitOver means that the request's wait was over before the key was free.
var errWaitOver = errors.New("the key was not free within the time to wait")

// keep sends the lines of a hold until it is over. It returns true if the client still has its connection, and may
// be given another hold.
func (h *Handler) keep(ctx context.Context, out *stream, c *held, q query) bool {
	if q.limit > 0 {
		_ = c.Progress(q.limit) // an error means that the hold is lost already
	}
	// Lost and Left compare the clock, so what is sent is true even after a freeze.
	lost := c.Lost()
	beat := time.NewTicker(h.beat)
	defer beat.Stop()
	err := out.send(h.first(c))
	for err == nil {
		select {
		case <-ctx.Done():
			h.release(c)
			return false
		case <-lost:
			if c.done.Load() {
				return true
			}
			err = out.send(lostLine{c.Err().Error(), statusjson.Milliseconds(h.grace)})
			h.releaseLater(c)
			return err == nil
		case <-beat.C:
			if left := leftOf(c); left.Left > 0 {
				err = out.send(left)
			}
		}
	}
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		// The client may be at work although it does not read, so it gets its grace.
		c.WindDown(errSlow)
		h.releaseLater(c)
	} else {
		h.release(c) // the kernel says that the client has closed its connection
	}
	return false
}

// errSlow is why the hold of a client that does not read is lost.
var errSlow = errors.New("agent: the client does not read its response")

// first returns the line that begins a hold.
func (h *Handler) first(c *held) any {
	line := heldLine{
		Held: c.Key(), ID: c.id, Tick: tickTime(c.Kind(), c.tick), Token: c.GrantToken(),
		left: leftOf(c), Grace: statusjson.Milliseconds(h.grace),
	}
	if c.Kind() == driver.KindElection {
		line.Held, line.Elected, line.Term = "", c.Key(), c.Term()
	}
	return line
}

// add gives a hold an id that no other client can guess.
func (h *Handler) add(hold *engine.Hold, tick int64) *held {
	c := &held{Hold: hold, id: rand.Text(), tick: tick}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.holds[c.id] = c
	return c
}

// remove returns whether c was there. Who removes a hold releases it.
func (h *Handler) remove(c *held) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.holds[c.id]
	delete(h.holds, c.id)
	return ok
}

func (h *Handler) find(r *http.Request) (*held, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.holds[r.PathValue("id")]; c != nil {
		return c, nil
	}
	return nil, errors.New("there is no such hold; it is over, or the id is not the one of the line held or elected")
}

// release releases a hold whose client is done. The engine goes on in the background.
func (h *Handler) release(c *held) {
	if h.remove(c) {
		_ = c.Release(engine.EndedContext(context.Background(), nil))
	}
}

// releaseLater releases a hold that was lost, when its client has had its grace. The session does that by itself; but
// it would take the client for one that does not stop, and be unhealthy.
func (h *Handler) releaseLater(c *held) {
	time.AfterFunc(h.grace, func() { h.release(c) })
}

// done ends a hold as its client wants it.
func (h *Handler) done(w http.ResponseWriter, r *http.Request, _ query) {
	c, err := h.find(r)
	if err != nil {
		refuse(w, http.StatusNotFound, err)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, driver.MaxValue))
	if err != nil {
		refuse(w, http.StatusBadRequest, fmt.Errorf("the result can't be read: %w; it may have at most %d bytes", err, driver.MaxValue))
		return
	}
	if len(body) > 0 && c.tick == 0 {
		refuse(w, http.StatusBadRequest, fmt.Errorf("the request has a body of %d bytes; only a run has a result", len(body)))
		return
	}
	if !h.remove(c) {
		refuse(w, http.StatusNotFound, errors.New("the hold was released meanwhile"))
		return
	}
	c.done.Store(true)
	if c.tick > 0 {
		c.ReleaseBy(driver.Release{Seal: c.tick, Result: body}) // after a loss this does nothing, and Release says so
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), h.s.TTL()/3)
	defer cancel()
	h.answer(w, c.Release(ctx))
}

// progress renews the limit of a hold.
func (h *Handler) progress(w http.ResponseWriter, r *http.Request, q query) {
	c, err := h.find(r)
	switch {
	case err != nil:
		refuse(w, http.StatusNotFound, err)
	case q.limit == 0:
		refuse(w, http.StatusBadRequest, errors.New("limit is missing; it is the time until the next call of progress, such as limit=1m"))
	default:
		h.answer(w, c.Progress(q.limit))
	}
}

// answer answers a POST.
func (h *Handler) answer(w http.ResponseWriter, err error) {
	if err != nil {
		refuse(w, statusOf(err), err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// statusOf returns the HTTP status for an error.
func statusOf(err error) int {
	switch {
	case errors.Is(err, dsync.ErrHeld), err == errWaitOver:
		return http.StatusConflict
	case errors.Is(err, dsync.ErrMismatch), errors.Is(err, dsync.ErrInvalidKey):
		return http.StatusBadRequest
	case errors.Is(err, dsync.ErrClosed):
		return http.StatusServiceUnavailable
	case errors.Is(err, dsync.ErrLost):
		return http.StatusGone
	case errors.Is(err, dsync.ErrRefused):
		return http.StatusBadGateway
	}
	return http.StatusGatewayTimeout
}

// failed answers a request whose hold could not be acquired.
func (h *Handler) failed(ctx context.Context, w http.ResponseWriter, key string, err error) {
	status := statusOf(err)
	line := errorLine{Error: err.Error()}
	if status == http.StatusConflict {
		st, err := h.read(ctx, key)
		switch {
		case err != nil: // the wait may be over because the store does not answer
			status, line.Error = statusOf(err), err.Error()
		case len(st.Holders) > 0:
			p := st.Holders[0]
			holder := statusjson.NewParticipant(p, false, st.Now)
			line.Holder = &holder
			line.Error = fmt.Sprintf("%q is held by %v", key, p)
		}
	}
	answer(w, status, line)
}

func (h *Handler) status(w http.ResponseWriter, r *http.Request, q query) {
	st, err := h.read(r.Context(), q.key)
	if err != nil {
		refuse(w, statusOf(err), err)
		return
	}
	answer(w, http.StatusOK, statusjson.NewStatus(st, func(p admin.Participant, queued bool) statusjson.Participant {
		return statusjson.NewParticipant(p, queued, st.Now)
	}))
}

// read reads the status of a key. It takes at most as long as an attempt of the session's own.
func (h *Handler) read(ctx context.Context, key string) (admin.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, h.beat)
	defer cancel()
	return h.all.Status(ctx, key)
}
