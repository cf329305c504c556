// Mutants makes small wrong changes to this module, one at a time, and requires the test named for each change to fail.
// This proves that the tests notice broken promises, broken timing rules, and the known defects of other libraries (B01
// to B45).
//
//	go run ./internal/mutants [-run regexp] [-part k/n] [-list] [-v] [-p n]
//
// The mutants are in testdata; README.md explains how to add a mutant. No mutant needs a server.
package main
