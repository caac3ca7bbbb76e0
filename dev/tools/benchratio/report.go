package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// group are the sub-benchmarks of one parent.
type group struct {
	parent  string
	base    string
	members []string
}

// groups sorts the results by parent; a benchmark without one is in none.
func groups(r *results) []*group {
	var all []*group
	byParent := map[string]*group{}
	for _, name := range r.names {
		parent, _ := split(name)
		if parent == "" {
			continue
		}
		g := byParent[parent]
		if g == nil {
			g = &group{parent: parent}
			byParent[parent] = g
			all = append(all, g)
		}
		g.members = append(g.members, name)
		if isBase(name) {
			g.base = name
		}
	}
	return all
}

// split cuts a name before its last element.
func split(name string) (parent, leaf string) {
	i := strings.LastIndexByte(name, '/')
	pkg := strings.IndexByte(name, ' ')
	if i < pkg {
		// No sub-benchmark: the slash belongs to the package.
		return "", name
	}
	return name[:i], name[i+1:]
}

func isBase(name string) bool {
	_, leaf := split(name)
	return leaf == "bare" || strings.HasSuffix(leaf, "=bare") || leaf == "goroutines=1" || leaf == "c"
}

// report prints a table for each group that has a baseline. It is an error if
// there is none: then the benchmarks were not named as agreed.
func report(out io.Writer, r *results) error {
	printed := 0
	for _, g := range groups(r) {
		if g.base == "" || len(g.members) < 2 {
			continue
		}
		if err := g.print(out, r); err != nil {
			return err
		}
		printed++
	}
	if printed == 0 {
		return errors.New("no group of sub-benchmarks with a baseline (bare or goroutines=1)")
	}
	return nil
}

func (g *group) print(out io.Writer, r *results) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s\n", g.parent)
	base := r.median(g.base)
	for _, name := range g.members {
		_, leaf := split(name)
		m := r.median(name)
		fmt.Fprintf(w, "  %s\t%.1f ns/op\t%g allocs/op\t%s\n", leaf, m.ns, m.allocs, g.compare(name, base, m))
	}
	return w.Flush()
}

// compare says how a member stands to the baseline: goroutines by the work
// they get done, everything else by the time it adds.
func (g *group) compare(name string, base, m measure) string {
	_, leaf := split(name)
	switch {
	case name == g.base:
		return "baseline"
	case m.ns == 0 || base.ns == 0:
		return "not comparable"
	case strings.HasPrefix(leaf, "goroutines="):
		return fmt.Sprintf("%.2f times the work", base.ns/m.ns)
	}
	return fmt.Sprintf("%+.1f ns, ratio %.2f", m.ns-base.ns, m.ns/base.ns)
}
