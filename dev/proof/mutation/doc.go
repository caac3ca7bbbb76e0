// Package mutation breaks the instrumented packages (cuda and what it imports) on purpose, one step
// of the fences at a time, to see whether package proof notices. The production code has no
// hooks for that: a [Site] names a text in it and what it is replaced by, and
// [Build] compiles a program over changed copies, in an overlay of the go
// command's. All sites are in the one program, each behind a switch (package
// activemutant). Program runmutants throws the switches and judges what comes of it.
package mutation
