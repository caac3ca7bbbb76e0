// Benchratio reads the output of go test -bench from files or standard input
// and prints how sub-benchmarks compare with the baseline among them.
//
// Sub-benchmarks that differ in their last element only are a group. The
// element says what each is:
//
//	BenchmarkPair/bare          baseline
//	BenchmarkPair/budget        compared: added nanoseconds, and ratio
//	BenchmarkPair/goroutines=1  baseline
//	BenchmarkPair/goroutines=2  compared: how many times the work
//	BenchmarkGPUPair/c          baseline: the same calls in a C loop
//
// "key=bare" counts as "bare". Several runs of one benchmark (-count) enter
// as their median. Every benchmark must count all goroutines' operations in
// b.N, as b.RunParallel does.
package main

import (
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "benchratio:", err)
		os.Exit(1)
	}
}

func run(paths []string, in io.Reader, out io.Writer) error {
	results := newResults()
	if len(paths) == 0 {
		if err := results.read(in); err != nil {
			return err
		}
	}
	for _, path := range paths {
		if err := results.readFile(path); err != nil {
			return err
		}
	}
	return report(out, results)
}
