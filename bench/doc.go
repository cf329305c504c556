// Package bench measures package dsync. Every figure that the README or a commit
// states comes from here, side by side with what it is compared to in one run:
//
//	go run ./bench/report
//	go test ./bench -bench . -count 10
//
// The first makes the README's table, on the servers that it finds, with etcd,
// PostgreSQL and Redis beside. The second is for benchstat, on MONGODB_URI if that is
// set and on the store in memory; read it as ratios within one run, too. Both measure
// by the same code, in internal/measure.
package bench
