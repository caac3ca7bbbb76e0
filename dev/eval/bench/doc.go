// Package bench holds the benchmarks of the whole stack and the tests of what
// they rest on: the hot paths allocate nothing.
package bench
