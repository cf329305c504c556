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

// A run is one measurement: a line of the file of samples.
type run struct {
	Name     string // of the version
	Kind     string // "mutex", "leader" or "alone"
	Sessions int
	Writes   int             // of an application beside, a second
	Took     []time.Duration // hand-offs; of "alone": calls of Unlock
	Locks    []time.Duration // of "alone": calls of Lock
	Sent     map[string]int  // of "alone": commands by name, all in all

	Stages [][]time.Duration `json:",omitempty"` // of each hand-off, with -stages
}

func main() {
	var (
		uri      = flag.String("uri", os.Getenv("MONGODB_URI"), "the server")
		name     = flag.String("name", "", "what this version is called in the samples")
		kinds    = flag.String("kinds", "mutex,leader,alone", "what to measure")
		sessions = flag.String("sessions", "2,8,64", "how many of them; one has the key")
		writes   = flag.String("writes", "0,300", "majority writes a second of an application beside")
		parts    = flag.Bool("stages", false, "where the time of a hand-off goes; the sessions' commands are watched, which takes some time, too")
		count    = flag.Int("count", 100, "hand-offs")
		tail     = flag.Bool("tail", false, "read the oplog meanwhile, as a secondary or a change stream does: a member alone may answer a majority write up to 1 ms later if nobody does")
		out      = flag.String("o", "", "append the samples to this file, a line of JSON for each run")
		read     = flag.String("read", "", "measure nothing: print the table of this file of samples")
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
						continue // nobody waits, whatever n
					}
					r := run{Name: *name, Kind: kind, Sessions: n, Writes: w}
					if err := measure(ctx, *uri, &r, *count, *parts); err != nil {
						return fmt.Errorf("%s of %d: %w", kind, n, err)
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
			return nil, fmt.Errorf("%q is no list of numbers", list)
		}
		ns = append(ns, n)
	}
	return ns, nil
}

// append prints the run, and writes it to the end of the file, if one is named.
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
