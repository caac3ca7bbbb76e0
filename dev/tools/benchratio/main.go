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
//
// With -table LEAF it prints one Markdown table instead: a row for each group, a column
// for each last element, and each figure's ratio to that of LEAF. In a cell are the
// median and the worst of the runs. tools/peers uses it.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	table := flag.String("table", "", "print one table, with ratios to the column `LEAF`")
	flag.Parse()
	write := report
	if *table != "" {
		write = func(out io.Writer, r *results) error { return printTable(out, r, *table) }
	}
	if err := run(flag.Args(), os.Stdin, os.Stdout, write); err != nil {
		fmt.Fprintln(os.Stderr, "benchratio:", err)
		os.Exit(1)
	}
}

// run reads the files, or in if there are none, and prints the results.
func run(paths []string, in io.Reader, out io.Writer, write func(io.Writer, *results) error) error {
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
	return write(out, results)
}
