package main

import "time"

// An effort is how much is measured.
type effort struct {
	turns, handOffs, resigns int // repetitions
	rings                    []int
	contend                  time.Duration
	held                     int
	heldFor                  time.Duration
	crashes                  int
	crashTTL                 time.Duration
	crowd, releases          int // sessions that wait for one key, releases of it
	inMemory                 int
	clients                  []int
	clientsFor               time.Duration
	keys                     int
	streams                  []int
	streamsFor               time.Duration
}

var full = effort{
	turns: 1000, handOffs: 200, resigns: 100,
	rings:   []int{2, 8, 64},
	contend: 5 * time.Second,
	held:    10_000, heldFor: 20 * time.Second,
	crashes: 10, crashTTL: 3 * time.Second,
	crowd: 1000, releases: 50,
	inMemory: 10_000,
	clients:  []int{1, 4, 16, 64}, clientsFor: 3 * time.Second,
	keys:    100_000,
	streams: []int{1, 32, 256}, streamsFor: 12 * time.Second,
}

var few = effort{
	turns: 20, handOffs: 3, resigns: 5,
	rings:   []int{2, 8},
	contend: 300 * time.Millisecond,
	held:    100, heldFor: 2 * time.Second,
	crashes: 1, crashTTL: 2 * time.Second, // etcd has no shorter one
	crowd: 20, releases: 5,
	inMemory: 500,
	clients:  []int{1, 4}, clientsFor: 300 * time.Millisecond,
	keys:    1000,
	streams: []int{1, 8}, streamsFor: time.Second,
}
