package main

import "time"

// An effort determines how much is measured. With all servers installed, a full report needs some
// 15 minutes.
type effort struct {
	turns, programs, handOffs, resigns int // repetitions
	rings                              []int
	apart                              int // processes of the operating system that hand off a key
	contend                            time.Duration
	inMemory                           int
	keys                               int
	goroutines                         []int
	fleets                             []fleetSize
	fleetIdle                          time.Duration // long enough that connections needed only at the start are closed again
	fleetFor                           time.Duration
	fleetCollections                   int // number of collections for notices
}

var full = effort{
	turns: 800, programs: 200, handOffs: 80, resigns: 60,
	rings: []int{2, 8, 64}, apart: 64,
	contend:  4 * time.Second,
	inMemory: 10_000,
	keys:     5000, goroutines: []int{1, 4, 16, 64},
	fleets: []fleetSize{
		{sessions: 100, waiting: 100}, {sessions: 1000, waiting: 1000}, {sessions: 3000, waiting: 3000},
		{sessions: 10_000, waiting: 7000, shared: true, ttl: 2 * time.Minute},
	},
	fleetIdle: 20 * time.Second, fleetFor: 10 * time.Second, fleetCollections: 64,
}

var few = effort{
	turns: 20, programs: 3, handOffs: 3, resigns: 5,
	rings: []int{2, 8}, apart: 2,
	contend:  300 * time.Millisecond,
	inMemory: 500,
	keys:     160, goroutines: []int{1, 16},
	fleets: []fleetSize{{sessions: 20, waiting: 20}, {sessions: 20, waiting: 10, shared: true, ttl: 10 * time.Second}}, fleetFor: time.Second, fleetCollections: 4,
}
