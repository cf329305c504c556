package main

import "time"

// An effort is how much is measured. With all servers here, full takes some 15 minutes.
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
	keys, newKeys            int
	pipelines                int   // how often each is sent
	price                    []int // processes that wait
	priceFor                 time.Duration
	pricePolled              time.Duration // with the most processes, if they hold, or listen in 64 collections: each polls every 30 s
	fleet                    []int
	fleetPlaces              int
}

var full = effort{
	turns: 800, handOffs: 80, resigns: 60,
	rings:   []int{2, 8, 64},
	contend: 4 * time.Second,
	held:    10_000, heldFor: 12 * time.Second,
	crashes: 10, crashTTL: 3 * time.Second,
	crowd: 1000, releases: 50,
	inMemory: 10_000,
	clients:  []int{1, 4, 16, 64}, clientsFor: 3 * time.Second,
	keys: 100_000, newKeys: 5000, pipelines: 1500,
	price: []int{0, 32, 1000}, priceFor: 8 * time.Second, pricePolled: 32 * time.Second,
	fleet: []int{1000, 3000}, fleetPlaces: 64,
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
	keys: 1000, newKeys: 100, pipelines: 10,
	price: []int{0, 4}, priceFor: time.Second, pricePolled: 2 * time.Second,
	fleet: []int{20}, fleetPlaces: 4,
}
