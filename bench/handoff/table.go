package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

func (r *run) String() string {
	s := fmt.Sprintf("%-4s %-6s %2d sessions, %3d writes/s: %4d, %s", r.Name, r.Kind, r.Sessions, r.Writes, len(r.Took), spread(r.Took))
	if r.Locks != nil {
		s += "; Lock " + spread(r.Locks) + ";" + commands(r.Sent, len(r.Took))
	}
	return s
}

// table merges the runs with the same parameters in the file and prints one line for each.
func table(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	all := make(map[string]*run)
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var r run
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return err
		}
		id := fmt.Sprintf("%s %03d %04d %s", r.Kind, r.Writes, r.Sessions, r.Name)
		sum := all[id]
		if sum == nil {
			all[id] = &r
			continue
		}
		sum.Took, sum.Locks = append(sum.Took, r.Took...), append(sum.Locks, r.Locks...)
		for name, n := range r.Sent {
			sum.Sent[name] += n
		}
	}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		fmt.Println(all[id])
	}
	return lines.Err()
}

// spread formats the median and the 99th percentile.
func spread(took []time.Duration) string {
	if len(took) == 0 {
		return "none"
	}
	sorted := slices.Sorted(slices.Values(took))
	at := func(share float64) time.Duration {
		return sorted[min(len(sorted)-1, int(share*float64(len(sorted))))].Round(10 * time.Microsecond)
	}
	return fmt.Sprintf("p50 %v p99 %v", at(0.5), at(0.99))
}

// commands formats the number of commands per operation, by name.
func commands(sent map[string]int, times int) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(sent)) {
		fmt.Fprintf(&b, " %s %.2f", name, float64(sent[name])/float64(times))
	}
	return b.String()
}
