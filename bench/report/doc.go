// Command report measures every figure in bench/README.md in one run. It prints two tables in
// Markdown: one of ratios and counts, and one of the times behind them. It also draws
// bench/lock-unlock.svg from the table in the README.
//
//	go run ./bench/report -readme bench/README.md
//	go run ./bench/report -draw bench/README.md     # only draw the plot
//
// If MONGODB_URI is set, it uses the server that it names; otherwise it starts mongod on loopback,
// with its data in a temporary directory. It starts etcd, PostgreSQL and Redis in the same way, and
// stops all of them at the end. The tables list a server that is not installed as "not here". Most
// figures are ratios of medians (p99: of 99th percentiles) of operations that ran in turn in one
// loop. Run nothing else on the machine meanwhile.
package main
