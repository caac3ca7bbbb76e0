// Package direct calls a C function by its address through an assembly
// trampoline over the runtime's own cgocall. It is an experiment, for
// linux/amd64, and empty elsewhere.
package direct
