// Package proof checks the fences of the instrumented packages (cuda and what it imports, the engine
// of internal/fence above all) against an oracle that knows nothing of them. A program is a list of
// operations on a few streams and blocks (package program); its host goroutines may take the steps of
// these in any order (a [Schedule]); a [Runner] takes them on the production code, over a driver that
// runs nothing and writes down what arrives (package device); and package oracle judges the graph that
// came about: is everything ordered that must be, can no wait be taken away, is nothing else ordered,
// and does every order of execution that is left read the values that the program means.
//
// A [Planner] takes the same steps on the oracle's plan, which says what each must lead to: so an
// [EngineRunner] is checked step by step, and the transcripts are written (package transcript). Where
// calls overlap the runner's device is one that several goroutines call (package overlap).
//
// What the tests make of it, and what it proves and does not, is in
// dev/proof.md.
package proof
