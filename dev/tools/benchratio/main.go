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
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/aclements/go-moremath/stats"
	"golang.org/x/perf/benchfmt"
)

func main() {
	table := flag.String("table", "", "print one table, with ratios to the column `LEAF`")
	flag.Parse()
	if err := run(flag.Args(), os.Stdout, *table); err != nil {
		fmt.Fprintln(os.Stderr, "benchratio:", err)
		os.Exit(1)
	}
}

// run reads the files, or standard input if there are none, and prints the results.
func run(paths []string, out io.Writer, table string) error {
	files := benchfmt.Files{Paths: paths, AllowStdin: true}
	groups := read(&files)
	if err := files.Err(); err != nil {
		return err
	}
	if table != "" {
		return printTable(out, groups, table)
	}
	return report(out, groups)
}

// group are the sub-benchmarks of one parent, in the order in which they came.
type group struct {
	pkg, parent string
	members     []*member
}

// member is one of a group, with the time in nanoseconds and the allocations for an operation
// in each run.
type member struct {
	leaf       string
	ns, allocs []float64
}

// read takes the results that have a time, and whose benchmark has a parent.
func read(files *benchfmt.Files) (groups []*group) {
	for files.Scan() {
		r, ok := files.Result().(*benchfmt.Result)
		if !ok {
			continue
		}
		base, parts := r.Name.Parts()
		if n := len(parts); n > 0 && parts[n-1][0] == '-' {
			parts = parts[:n-1] // GOMAXPROCS
		}
		seconds, timed := r.Value("sec/op")
		if !timed || len(parts) == 0 {
			continue
		}
		parent, leaf := string(base), string(parts[len(parts)-1][1:])
		for _, p := range parts[:len(parts)-1] {
			parent += string(p)
		}
		g := find(&groups, func(g *group) bool { return g.pkg == r.GetConfig("pkg") && g.parent == parent }, &group{pkg: r.GetConfig("pkg"), parent: parent})
		m := find(&g.members, func(m *member) bool { return m.leaf == leaf }, &member{leaf: leaf})
		allocs, _ := r.Value("allocs/op")
		m.ns, m.allocs = append(m.ns, seconds*1e9), append(m.allocs, allocs)
	}
	return groups
}

// find is the element that is the one sought, or a new one at the end.
func find[T any](list *[]*T, is func(*T) bool, otherwise *T) *T {
	if i := slices.IndexFunc(*list, is); i >= 0 {
		return (*list)[i]
	}
	*list = append(*list, otherwise)
	return otherwise
}

func median(runs []float64) float64 { return stats.Sample{Xs: runs}.Quantile(.5) }

func (m *member) isBase() bool {
	return m.leaf == "bare" || strings.HasSuffix(m.leaf, "=bare") || m.leaf == "goroutines=1" || m.leaf == "c"
}

// report prints a table for each group that has a baseline. It is an error if
// there is none: then the benchmarks were not named as agreed.
func report(out io.Writer, groups []*group) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	printed := 0
	for _, g := range groups {
		at := slices.IndexFunc(g.members, (*member).isBase)
		if at < 0 || len(g.members) < 2 {
			continue
		}
		fmt.Fprintf(w, "%s %s\n", g.pkg, g.parent)
		for _, m := range g.members {
			fmt.Fprintf(w, "  %s\t%.1f ns/op\t%g allocs/op\t%s\n", m.leaf, median(m.ns), median(m.allocs), m.compare(g.members[at]))
		}
		if err := w.Flush(); err != nil {
			return err
		}
		printed++
	}
	if printed == 0 {
		return errors.New("no group of sub-benchmarks with a baseline (bare or goroutines=1)")
	}
	return nil
}

// compare says how a member stands to the baseline: goroutines by the work
// they get done, everything else by the time it adds.
func (m *member) compare(base *member) string {
	ns, baseNS := median(m.ns), median(base.ns)
	switch {
	case m == base:
		return "baseline"
	case ns == 0 || baseNS == 0:
		return "not comparable"
	case strings.HasPrefix(m.leaf, "goroutines="):
		return fmt.Sprintf("%.2f times the work", baseNS/ns)
	}
	return fmt.Sprintf("%+.1f ns, ratio %.2f", ns-baseNS, ns/baseNS)
}

// printTable prints a row for each parent and a column for each last element, whatever
// package a line came from. It is an error if no result is in the column base.
func printTable(out io.Writer, groups []*group, base string) error {
	var rows, columns []string
	cells := map[[2]string]*member{} // by row and column
	for _, g := range groups {
		rows = append(rows, g.parent)
		for _, m := range g.members {
			columns = append(columns, m.leaf)
			at := [2]string{g.parent, m.leaf}
			if cells[at] == nil {
				cells[at] = &member{leaf: m.leaf}
			}
			cells[at].ns = append(cells[at].ns, m.ns...)
		}
	}
	rows, columns = unique(rows), unique(columns)
	if !slices.Contains(columns, base) {
		return fmt.Errorf("no result of %s, to which the others would be compared", base)
	}
	fmt.Fprintf(out, "ns, median (worst) of the runs, and times the median of %s:\n\n", base)
	fmt.Fprintf(out, "| | %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat(" --- |", len(columns)+1))
	for _, row := range rows {
		texts := []string{row}
		for _, column := range columns {
			texts = append(texts, cells[[2]string{row, column}].cell(cells[[2]string{row, base}]))
		}
		if _, err := fmt.Fprintf(out, "| %s |\n", strings.Join(texts, " | ")); err != nil {
			return err
		}
	}
	return nil
}

// unique is the texts in the order in which they came first.
func unique(texts []string) (list []string) {
	for _, text := range texts {
		if !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	return list
}

// cell is the text of a figure; either may be nil, for there is none.
func (m *member) cell(base *member) string {
	if m == nil {
		return "–"
	}
	text := fmt.Sprintf("%s (%s)", short(median(m.ns)), short(slices.Max(m.ns)))
	if base != nil && base != m && median(base.ns) > 0 {
		text += fmt.Sprintf(" %.2f×", median(m.ns)/median(base.ns))
	}
	return text
}

// short has a digit behind the point where one matters.
func short(ns float64) string {
	if ns < 10 {
		return fmt.Sprintf("%.1f", ns)
	}
	return fmt.Sprintf("%.0f", ns)
}
