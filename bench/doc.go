// Package bench measures package dsync. Every figure that the README or a commit
// states comes from here, side by side with what it is compared to in one run:
//
//	go test ./bench -bench . -count 10
//
// With MONGODB_URI set the benchmarks on a server run too; without it they say so
// and are left out. Read them with benchstat, as ratios within one run.
package bench
