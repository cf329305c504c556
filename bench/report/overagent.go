package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/agent"
)

// overAgent measures Lock over an agent in this process, relative to Lock by the library, in turn on the same server. One
// client opens a connection for each request, as the clients in other languages do, and the other keeps them. The
// releases between are not measured. All wait until a majority has them.
func (r *report) overAgent(ctx context.Context) ([]row, error) {
	u := units{}
	ps, end, err := r.players(ctx, mutexes, one, three)
	if err != nil {
		return nil, err
	}
	defer func() { end() }()
	var cs []contender
	for _, p := range ps {
		s, err := p.target.Session(ctx, dsync.Options{})
		if err != nil {
			return nil, err
		}
		server := httptest.NewServer(agent.New(s, nil))
		defer server.Close()
		defer s.Close(context.WithoutCancel(ctx))
		client := func(keep bool) measure.Op {
			transport := &http.Transport{DisableKeepAlives: !keep}
			end = func(before func()) func() { return func() { transport.CloseIdleConnections(); before() } }(end)
			return agentClient{server.URL, &http.Client{Transport: transport}}.lock
		}
		mu := s.Mutex("library")
		cs = append(cs, contender{column: p.column, op: client(false), early: client(true), unit: func(ctx context.Context) (took time.Duration, err error) {
			begin := time.Now()
			h, err := mu.Hold(ctx)
			if err != nil {
				return 0, err
			}
			took = time.Since(begin)
			return took, h.Release(ctx)
		}})
	}
	anew, kept, err := interleave(ctx, r.effort.turns, u, cs...)
	if err != nil {
		return nil, err
	}
	line := func(what string, took map[column]measure.Sample) row {
		line := row{name: what, unit: "Lock"}
		line = line.compared(median, took, u)
		for c, s := range took {
			line.cells[c].ratio = milliseconds(s.Median()-u[c].Median()) + ", " + line.cells[c].ratio
		}
		return line
	}
	return joined("Lock over an agent, by how much it takes longer",
		line("a connection for each request", anew), line("kept connections", kept)), nil
}

// An agentClient is a client of an agent.
type agentClient struct {
	url  string
	http *http.Client
}

// lock returns how long it took until the lock was held. Then it releases the lock.
func (c agentClient) lock(ctx context.Context) (took time.Duration, err error) {
	begin := time.Now()
	lock, err := c.send(ctx, "GET", "/v1/locks/agent", http.StatusOK)
	if err != nil {
		return 0, err
	}
	defer lock.Body.Close()
	lines := bufio.NewReader(lock.Body)
	line, err := lines.ReadBytes('\n')
	if err != nil {
		return 0, err
	}
	var held struct{ ID string }
	if err := json.Unmarshal(line, &held); err != nil {
		return 0, err
	}
	took = time.Since(begin)
	done, err := c.send(ctx, "POST", "/v1/holds/"+held.ID+"/done", http.StatusNoContent)
	if err != nil {
		return 0, err
	}
	if _, err := lines.ReadByte(); err != io.EOF { // the end, so that the connection can be kept
		return 0, fmt.Errorf("the response goes on after done: %v", err)
	}
	return took, done.Body.Close()
}

// send fails unless the answer has the given status.
func (c agentClient) send(ctx context.Context, method, path string, status int) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.url+path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := c.http.Do(r)
	if err == nil && answer.StatusCode != status {
		answer.Body.Close()
		err = fmt.Errorf("%s %s: status %s, want %d", method, path, answer.Status, status)
	}
	return answer, err
}
