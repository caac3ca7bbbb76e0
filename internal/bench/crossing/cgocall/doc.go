// Package cgocall calls a C function by its address through cgo. It is empty
// in builds without cgo.
package cgocall
