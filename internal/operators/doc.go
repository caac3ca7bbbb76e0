// Package operators is what operators look at, over HTTP: metrics, probes, the live
// view, the history, the guard's switch, incident files and profiles, of one
// device or several. It knows a runtime as a [Device] only; the root package fills
// that in, and documents the paths.
//
// What shows something is open to whoever can connect. What changes something, the
// guard's setting or the files of a dump, is taken from this machine alone.
package operators
