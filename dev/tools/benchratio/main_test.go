package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
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

// printed is what comes of an output in a file.
func printed(t *testing.T, output, table string) (string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bench.txt")
	must.Do(t, os.WriteFile(path, []byte(output), 0o600))
	var out bytes.Buffer
	err := run([]string{path}, &out, table)
	return out.String(), err
}

func TestRatiosAreOfMedians(t *testing.T) {
	if diff := cmp.Diff(want, must.Get(printed(t, output, ""))(t)); diff != "" {
		t.Error(diff)
	}
}

func TestAMissingFileIsAnError(t *testing.T) {
	if err := run([]string{filepath.Join(t.TempDir(), "missing")}, io.Discard, ""); err == nil {
		t.Error("no error")
	}
}

func TestEvenNumberOfRunsTakesTheMiddle(t *testing.T) {
	if got := median([]float64{200, 100}); got != 150 {
		t.Errorf("median %v, want 150", got)
	}
}

func TestOutputWithoutBaselinesIsAnError(t *testing.T) {
	if _, err := printed(t, "PASS\n", ""); err == nil {
		t.Error("no error")
	}
}

const peersOutput = `BenchmarkGPUPeers/pair/threads=1/arena 100 300.0 ns/op
BenchmarkGPUPeers/pair/threads=1/arena 100 100.0 ns/op
BenchmarkGPUPeers/lone/arena 100 7.0 ns/op
goos: linux
pkg: example.com/a/b
BenchmarkGPUPeers/pair/threads=1/ours-16 100 50.04 ns/op
BenchmarkGPUPeers/pair/threads=1/ours-16 100 150.0 ns/op 0 B/op 0 allocs/op
BenchmarkGPUPeers/launch/ours-16 100 0.4 ns/op
BenchmarkAlone-16 100 1 ns/op
BenchmarkGPUPeers/pair/threads=1/arena 100 200.0 ns/op
`

const wantTable = `ns, median (worst) of the runs, and times the median of arena:

| | arena | ours |
| --- | --- | --- |
| GPUPeers/pair/threads=1 | 200 (300) | 100 (150) 0.50× |
| GPUPeers/lone | 7.0 (7.0) | – |
| GPUPeers/launch | – | 0.4 (0.4) |
`

func TestATableHasMedianWorstAndRatio(t *testing.T) {
	if diff := cmp.Diff(wantTable, must.Get(printed(t, peersOutput, "arena"))(t)); diff != "" {
		t.Error(diff)
	}
}

func TestATableWithoutItsBaseIsAnError(t *testing.T) {
	if _, err := printed(t, "BenchmarkX/ours 1 100 ns/op\n", "arena"); err == nil {
		t.Error("no error")
	}
}
