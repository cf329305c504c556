package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// A run is one measurement, stored as one line of the samples file.
type run struct {
	Name     string // the version's name
	Kind     string // "mutex", "leader" or "alone"
	Sessions int
	Writes   int             // how many writes per second an application makes on the same server
	Took     []time.Duration // the time of each hand-off; for "alone", of each Unlock
	Locks    []time.Duration // for "alone": the time of each Lock
	Sent     map[string]int  // for "alone": the number of commands, by name

	Stages [][]time.Duration `json:",omitempty"` // the stages of each hand-off, if -stages is set
}

func main() {
	var (
		uri      = flag.String("uri", os.Getenv("MONGODB_URI"), "connection string of the server")
		name     = flag.String("name", "", "name of this version in the samples")
		kinds    = flag.String("kinds", "mutex,leader,alone", "what to measure: mutex and leader are hand-offs, alone is an uncontended mutex")
		sessions = flag.String("sessions", "2,8,64", "numbers of sessions; one holds the key, the others wait")
		writes   = flag.String("writes", "0,300", "majority writes per second by another application on the same server")
		parts    = flag.Bool("stages", false, "also report how long each stage of a hand-off takes; monitoring the commands adds some time of its own")
		count    = flag.Int("count", 100, "number of hand-offs per run")
		tail     = flag.Bool("tail", false, "tail the oplog during the run, as a secondary or a change stream does; on a one-member replica set nobody else may, and then majority writes can take up to 1 ms longer")
		out      = flag.String("o", "", "append the samples to this file, one line of JSON per run")
		read     = flag.String("read", "", "measure nothing; print a table of the samples in this file")
	)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := func() error {
		if *read != "" {
			return table(*read)
		}
		if *tail {
			stop, err := tailOplog(ctx, *uri)
			if err != nil {
				return err
			}
			defer stop()
		}
		ns, err := numbers(*sessions)
		ws, badWrites := numbers(*writes)
		if err = errors.Join(err, badWrites); err != nil {
			return err
		}
		for _, kind := range strings.Split(*kinds, ",") {
			for _, w := range ws {
				for _, n := range ns {
					if kind == "alone" && n != ns[0] {
						continue // uses one session, so n does not matter
					}
					r := run{Name: *name, Kind: kind, Sessions: n, Writes: w}
					if err := measure(ctx, *uri, &r, *count, *parts); err != nil {
						return fmt.Errorf("%s, %d sessions: %w", kind, n, err)
					}
					if err := r.append(*out); err != nil {
						return err
					}
				}
			}
		}
		return nil
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "handoff:", err)
		os.Exit(1)
	}
}

func numbers(list string) (ns []int, err error) {
	for _, text := range strings.Split(list, ",") {
		var n int
		if _, err := fmt.Sscan(text, &n); err != nil {
			return nil, fmt.Errorf("%q is not a comma-separated list of numbers", list)
		}
		ns = append(ns, n)
	}
	return ns, nil
}

// append prints the run and, if a file is named, appends it to that file.
func (r *run) append(file string) error {
	fmt.Println(r)
	if r.Stages != nil {
		r.printStages()
	}
	if file == "" {
		return nil
	}
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}
