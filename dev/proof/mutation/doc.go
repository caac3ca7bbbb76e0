// Package mutation breaks the instrumented packages (cuda and what it imports) on purpose, one place
// of the fences at a time, to see whether package proof notices. The production code has no
// hooks for that. Operators on the syntax tree (operators.go) are applied to the functions that
// functions.go names; textual.go has the mutants that no operator makes; equivalent.go says of those
// that survive why nothing can show them. [Build] compiles a program over changed copies, in an overlay
// of the go command's, with all mutants in it, each behind a switch (package activemutant). Program
// runmutants throws the switches and judges what comes of it.
package mutation
