// Command handoff measures how long it takes from the call of Unlock until the next
// session has the key, for a mutex or, by Resign and Campaign, for a leadership; and what
// Lock and Unlock cost where nobody waits. It uses nothing but the public interface of the
// library, so that a copy of it in another version's tree measures that version:
//
//	go build -o /tmp/new ./bench/handoff
//	cp -r bench/handoff ../old/bench/ && (cd ../old && go build -o /tmp/old ./bench/handoff)
//	for i in 1 2 3; do for v in old new; do /tmp/$v -uri "$URI" -name $v -o /tmp/samples; done; done
//	/tmp/new -read /tmp/samples
//
// Figures of different versions are compared only if they were taken in turn. The
// sessions are in one process, each with a client of its own.
package main
