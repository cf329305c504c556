// Mutants makes small wrong changes to a copy of this module, one at a time, and
// demands that the test named for each fails under it: so that no promise, timing
// rule or defect from elsewhere (B01 to B36) is one whose breaking goes unnoticed.
//
//	go run ./internal/mutants [-run regexp] [-list] [-v] [-count n]
//
// The mutants are in testdata; README.md says how to add one. None needs a server.
package main
