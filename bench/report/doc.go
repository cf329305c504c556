// Command report measures every figure in the tables of bench/README.md in one run. It prints tables
// in Markdown: first the ratios and counts, then the times behind them. With -readme, it also
// replaces the tables in that README and redraws lock-unlock.svg beside it. With -only, it makes some
// of the measurements. Then it does not replace the tables: paste the rows that it prints.
//
//	go run ./bench/report -readme bench/README.md
//	go run ./bench/report -draw bench/README.md     # only draw the plot
//
// If MONGODB_URI is set, the report uses that server. Otherwise it starts mongod on loopback, with its
// data in a temporary directory. It starts etcd, PostgreSQL and Redis in the same way, and at the end
// stops the servers that it started. The tables list a server that is not available as "not here".
// Most figures are ratios of medians (p99: of 99th percentiles) of operations that ran in turn in one
// loop. While the report runs, run nothing else on the machine.
package main
