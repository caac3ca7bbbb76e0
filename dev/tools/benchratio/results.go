package main

import (
	"bufio"
	"cmp"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// results are the runs of each benchmark, and the names in order of
// appearance.
type results struct {
	names []string
	runs  map[string][]measure
	pkg   string
}

// measure is one run: time and allocations per operation.
type measure struct{ ns, allocs float64 }

func newResults() *results { return &results{runs: map[string][]measure{}} }

func (r *results) readFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return r.read(f)
}

func (r *results) read(in io.Reader) error {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		r.line(lines.Text())
	}
	return lines.Err()
}

// procs is the suffix that go test puts behind a name: GOMAXPROCS.
var procs = regexp.MustCompile(`-\d+$`)

// line takes one line of output; what is no result is passed over.
func (r *results) line(text string) {
	if pkg, ok := strings.CutPrefix(text, "pkg: "); ok {
		r.pkg = pkg
		return
	}
	fields := strings.Fields(text)
	if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
		return
	}
	m, ok := parseMeasure(fields[2:])
	if !ok {
		return
	}
	name := r.pkg + " " + procs.ReplaceAllString(strings.TrimPrefix(fields[0], "Benchmark"), "")
	if r.runs[name] == nil {
		r.names = append(r.names, name)
	}
	r.runs[name] = append(r.runs[name], m)
}

// parseMeasure reads pairs of value and unit.
func parseMeasure(fields []string) (m measure, ok bool) {
	for i := 0; i+1 < len(fields); i += 2 {
		value, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			return m, false
		}
		switch fields[i+1] {
		case "ns/op":
			m.ns, ok = value, true
		case "allocs/op":
			m.allocs = value
		}
	}
	return m, ok
}

// median is the median of each column over the runs of a benchmark.
func (r *results) median(name string) measure {
	column := func(of func(measure) float64) float64 {
		var values []float64
		for _, m := range r.runs[name] {
			values = append(values, of(m))
		}
		slices.Sort(values)
		n := len(values)
		return (values[(n-1)/2] + values[n/2]) / 2
	}
	return measure{
		ns:     column(func(m measure) float64 { return m.ns }),
		allocs: column(func(m measure) float64 { return m.allocs }),
	}
}

// worst is the longest time among the runs of a benchmark.
func (r *results) worst(name string) float64 {
	return slices.MaxFunc(r.runs[name], func(a, b measure) int { return cmp.Compare(a.ns, b.ns) }).ns
}
