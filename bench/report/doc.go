// Command report measures what bench/README.md states, all in one run, and prints it as
// Markdown: a table of ratios and counts, and one of the figures behind them. From the table in
// the README it draws bench/lock-unlock.svg.
//
//	go run ./bench/report -readme bench/README.md
//	go run ./bench/report -draw bench/README.md     # the plot alone, nothing measured
//
// It takes the server at MONGODB_URI, or starts what it finds of mongod, etcd,
// PostgreSQL and Redis, on loopback, in temporary directories, and ends them. What is
// not there is "not here" in the tables. Ratios are of medians of times that were
// taken in turn, in one loop; nothing else should run on the machine meanwhile.
package main
