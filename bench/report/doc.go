// Command report measures every figure in bench/README.md in one run. It prints two tables in
// Markdown: one of ratios and counts, and one of the times behind them. It also draws
// bench/lock-unlock.svg from the table in the README.
//
//	go run ./bench/report -readme bench/README.md
//	go run ./bench/report -draw bench/README.md     # only draw the plot
//
// It uses the server at MONGODB_URI. If that is not set, it starts mongod on loopback with its data
// in a temporary directory. It starts etcd, PostgreSQL and Redis in the same way, and stops all of
// them at the end. A server that is not installed is "not here" in the tables. Most figures are
// ratios of medians (p99: of 99th percentiles) of operations that ran in turn in one loop. Run
// nothing else on the machine meanwhile.
package main
