package fenceproof

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/dev/proof"
	"github.com/fencepost-gpu/fencepost/dev/proof/overlap"
	"github.com/fencepost-gpu/fencepost/dev/proof/overlay"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// explorer is the program that calls the instrumented packages from several goroutines, built
// over an overlay in which they take their locks and atomics from a scheduler, with the faults of
// plants built in.
type explorer struct{ path string }

// built is the explorer, built once for all tests, in a folder that TestMain removes.
var built = sync.OnceValues(func() (x explorer, err error) {
	if folder, err = os.MkdirTemp("", "fenceproof"); err != nil {
		return x, err
	}
	ctx := context.Background()
	root, err := overlay.Root(ctx)
	if err != nil {
		return x, err
	}
	files, err := overlay.Interleaved(root)
	if err == nil {
		err = files.Watch(root)
	}
	if err != nil {
		return x, err
	}
	for i, p := range plants {
		for _, e := range p.edits {
			e.New = strings.ReplaceAll(e.New, "planted()", fmt.Sprintf("planted(%d)", i+1))
			if err := files.Apply(root, e); err != nil {
				return x, fmt.Errorf("%s: %w", p.name, err)
			}
		}
	}
	replaced, err := files.Write(root, folder)
	if err != nil {
		return x, err
	}
	x.path = filepath.Join(folder, "explore")
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-overlay", replaced, "-o", x.path, overlay.Proofs+"/overlap/explore")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		return x, fmt.Errorf("%w\n%s", err, out)
	}
	return x, nil
})

var folder string

func TestMain(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(folder)
	os.Exit(code)
}

func buildExplorer(t *testing.T) explorer {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("the go command is not here, and it builds what is to be explored")
	}
	x, err := built()
	must.Do(t, err)
	return x
}

func (x explorer) run(t *testing.T, args ...string) overlap.Total {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), x.path, args...).Output()
	var total overlap.Total
	if err == nil {
		err = json.Unmarshal(out, &total)
	}
	if err != nil {
		t.Errorf("explore %v: %v\n%s", args, err, out)
	}
	return total
}

// movesInside are in how many executions the pool must do each thing at least while calls overlap, with
// how many operations must be served at once and prepared meanwhile.
var movesInside = proof.Moves{Reuses: 10_000, Splits: 3000, Merges: 1000, Joins: 700, Takeovers: 5000, Steals: 8000, Remaps: 300, Growths: 1000, Refusals: 8000,
	QuickAllocations: 2500, QuickFrees: 2000, SlowAllocations: 25_000, SlowFrees: 2500}

// TestFencesInterleavedInsideCalls runs small programs in which two or three
// goroutines are inside calls at once, and switches between them at every lock,
// atomic and driver call, with up to so many preemptions: over the driver's pool, and over the runtime's
// own, which must do everything often enough. With -short it is some of the programs.
func TestFencesInterleavedInsideCalls(t *testing.T) {
	x := buildExplorer(t)
	parts := runtime.GOMAXPROCS(0)
	if testing.Short() {
		parts *= 100
	}
	args := []string{"-of", strconv.Itoa(parts)}
	if os.Getenv("FENCEPOST_FENCES") == "full" {
		args = append(args, "-all")
	}
	var (
		mu    sync.Mutex
		wg    sync.WaitGroup
		total overlap.Total
		start = time.Now()
	)
	for own := range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			got := x.run(t, append([]string{"-own", strconv.Itoa(own)}, args...)...)
			mu.Lock()
			defer mu.Unlock()
			total.Add(got)
		})
	}
	wg.Wait()
	if total.Failure != "" || total.Executions == 0 {
		t.Errorf("%s", total.Failure)
	}
	t.Logf("%d executions with %d steps, %d of which differ by more than the order of what has nothing in common, in %v",
		total.Executions, total.Steps, total.Ends, time.Since(start).Round(time.Millisecond))
	if !testing.Short() {
		requireMoves(t, total.Moves, movesInside)
	}
	fmt.Printf("locks: %v preemptions=%s complete=%v\npool: %v\n", total, strings.Join(total.Bounds, "+"), !t.Failed() && !testing.Short(), total.Moves)
}

// TestTheReductionLosesNothingInsideCalls explores some programs once more, and
// stops before every step, whether anybody could tell or not.
func TestTheReductionLosesNothingInsideCalls(t *testing.T) {
	sampled, fewest := 100, 20
	if testing.Short() {
		sampled, fewest = 1000, 2
	}
	total := buildExplorer(t).run(t, "-compare", strconv.Itoa(sampled))
	t.Logf("%v: %d programs, %d executions", total.Bounds, total.Programs, total.Executions)
	if total.Failure != "" || total.Programs < uint64(fewest) {
		t.Errorf("%s", total.Failure)
	}
}
