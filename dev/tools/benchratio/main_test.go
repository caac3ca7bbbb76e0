package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

const output = `goos: linux
pkg: example.com/a/b
BenchmarkPair/bare-2         	 100	 200.0 ns/op	 0 B/op	 0 allocs/op
BenchmarkPair/bare-2         	 100	 100.0 ns/op	 0 B/op	 0 allocs/op
BenchmarkPair/bare-2         	 100	 900.0 ns/op	 0 B/op	 0 allocs/op
BenchmarkPair/stack=budget-2 	 100	 500.0 ns/op	16 B/op	 2 allocs/op
BenchmarkScale/goroutines=1-2	 100	 300.0 ns/op
BenchmarkScale/goroutines=2-2	 100	 160.0 ns/op
BenchmarkAlone-2             	 100	 160.0 ns/op
BenchmarkNoBase/x-2          	 100	 160.0 ns/op
--- BENCH: BenchmarkNoBase/x-2
PASS
`

const want = `example.com/a/b Pair
  bare          200.0 ns/op  0 allocs/op  baseline
  stack=budget  500.0 ns/op  2 allocs/op  +300.0 ns, ratio 2.50
example.com/a/b Scale
  goroutines=1  300.0 ns/op  0 allocs/op  baseline
  goroutines=2  160.0 ns/op  0 allocs/op  1.88 times the work
`

func TestRatiosAreOfMedians(t *testing.T) {
	var out bytes.Buffer
	must.Do(t, run(nil, strings.NewReader(output), &out, report))
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestFilesAreReadToo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bench.txt")
	must.Do(t, os.WriteFile(path, []byte(output), 0o600))
	var out bytes.Buffer
	if err := run([]string{path}, nil, &out, report); err != nil || out.String() != want {
		t.Errorf("got %v\n%s", err, out.String())
	}
	if err := run([]string{path + ".missing"}, nil, &out, report); err == nil {
		t.Error("a missing file is not an error")
	}
}

func TestEvenNumberOfRunsTakesTheMiddle(t *testing.T) {
	r := newResults()
	r.line("BenchmarkX/bare 1 100 ns/op")
	r.line("BenchmarkX/bare 1 200 ns/op")
	if got := r.median(" X/bare").ns; got != 150 {
		t.Errorf("median %v, want 150", got)
	}
}

func TestOutputWithoutBaselinesIsAnError(t *testing.T) {
	var out bytes.Buffer
	if err := run(nil, strings.NewReader("PASS\n"), &out, report); err == nil {
		t.Error("no error")
	}
}

const peersOutput = `BenchmarkGPUPeers/pair/threads=1/arena 100 300.0 ns/op
BenchmarkGPUPeers/pair/threads=1/arena 100 100.0 ns/op
BenchmarkGPUPeers/pair/threads=1/arena 100 200.0 ns/op
BenchmarkGPUPeers/lone/arena 100 7.0 ns/op
goos: linux
pkg: example.com/a/b
BenchmarkGPUPeers/pair/threads=1/ours-16 100 50.04 ns/op
BenchmarkGPUPeers/pair/threads=1/ours-16 100 150.0 ns/op 0 B/op 0 allocs/op
BenchmarkGPUPeers/launch/ours-16 100 0.4 ns/op
BenchmarkAlone-16 100 1 ns/op
`

const wantTable = `ns, median (worst) of the runs, and times the median of arena:

| | arena | ours |
| --- | --- | --- |
| GPUPeers/pair/threads=1 | 200 (300) | 100 (150) 0.50× |
| GPUPeers/lone | 7.0 (7.0) | – |
| GPUPeers/launch | – | 0.4 (0.4) |
`

func TestATableHasMedianWorstAndRatio(t *testing.T) {
	var out bytes.Buffer
	table := func(out io.Writer, r *results) error { return printTable(out, r, "arena") }
	must.Do(t, run(nil, strings.NewReader(peersOutput), &out, table))
	if diff := cmp.Diff(wantTable, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestATableWithoutItsBaseIsAnError(t *testing.T) {
	r := newResults()
	r.line("BenchmarkX/ours 1 100 ns/op")
	if err := printTable(io.Discard, r, "arena"); err == nil {
		t.Error("no error")
	}
}
