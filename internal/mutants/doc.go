// Mutants makes small wrong changes to a copy of this module, one at a time, and
// demands that the test named for each fails under it: so that no promise, timing
// rule or defect from elsewhere (B01 to B45) is one whose breaking goes unnoticed.
//
//	go run ./internal/mutants [-run regexp] [-part k/n] [-list] [-v] [-count n]
//	go run ./internal/mutants random [-n mutants] [-seed number] [-p workers] [package ...]
//
// The mutants are in testdata; README.md says how to add one. None needs a server.
//
// With random it draws places in the packages' code at random, changes them by the
// classic operators of mutation testing, and runs all tests that could notice. It is
// run by hand: it tells what share of such changes is caught, and shows the others.
package main
