// Command handoff measures how long hand-offs take: for a mutex, from the call of Unlock until the
// next session holds the key; for a leadership, from the call of Resign until the next Campaign
// returns. It also measures what Lock and Unlock cost without contention. It uses only the
// library's public interface, so if it is copied into the tree of another version, it measures that
// version:
//
//	go build -o /tmp/new ./bench/handoff
//	cp -r bench/handoff ../old/bench/ && (cd ../old && go build -o /tmp/old ./bench/handoff)
//	for i in 1 2 3; do for v in old new; do /tmp/$v -uri "$URI" -name $v -o /tmp/samples; done; done
//	/tmp/new -read /tmp/samples
//
// Compare figures of different versions only if their runs alternated, as in this loop. The
// sessions are in one process, each with its own client.
package main
