package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/audit"
	"github.com/fencepost-gpu/fencepost/internal/refuse"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

func TestADemoIsCleanAndMostlyAcrossStreams(t *testing.T) {
	for _, resource := range []fencepost.Backend{fencepost.Async, fencepost.Pool} {
		t.Run(string(resource), func(t *testing.T) { demoIsClean(t, string(resource)) })
	}
}

func demoIsClean(t *testing.T, resource string) {
	t.Helper()
	worked := func(r *Report) bool {
		return r.Results > 0 && r.CrossStreamLaunches > 1 && r.Guarding.QuarantinePeak > 0
	}
	r := runUntilOver(t, resource, worked, "", "sample:65536", nil)
	if !r.Clean() {
		t.Errorf("not clean: %+v", r)
	}
	if r.Launches == 0 || 2*r.CrossStreamLaunches < r.Launches || r.Results == 0 || r.WaitsQueued == 0 {
		t.Errorf("%d launches, %d across streams, %d results, %d waits", r.Launches, r.CrossStreamLaunches, r.Results, r.WaitsQueued)
	}
	if r.Bytes.End != 0 || r.Bytes.PeakRequested == 0 || r.Bytes.Peak < r.Bytes.PeakRequested || r.Bytes.Budget != sim.DefaultBytes {
		t.Errorf("bytes: %+v", r.Bytes)
	}
	if g := r.Guarding; g.Mode != "sample" || g.Guarded == 0 || g.Verified < g.Guarded || g.QuarantinePeak == 0 || g.Evicted == 0 || g.Findings != 0 {
		t.Errorf("the guard: %+v", g)
	}
	if r.Operations["allocate"] != r.Operations["deallocate"] || len(r.Failures) != 0 {
		t.Errorf("operations %v, failures %v", r.Operations, r.Failures)
	}
}

// The demo must be able to fail: with every wait dropped at the device it
// ends with findings.
func TestADemoWithoutFencesIsNotClean(t *testing.T) {
	found := func(r *Report) bool { return len(r.Findings) > 0 }
	r := runUntil(t, found, "", "off", func(d *sim.Device) { d.DropWaits(true) })
	if r.Clean() || len(r.Findings) == 0 {
		t.Errorf("no wait reached the device and the report says %v", r.Findings)
	}
}

func TestADemoEndsWhenTheDeviceIsLost(t *testing.T) {
	lost := func(r *Report) bool { return len(r.Errors) > 0 }
	r := runUntil(t, lost, "", "off", func(d *sim.Device) { d.LoseContext(driver.IllegalAddress) })
	if r.Clean() || r.Findings[names.FindingStickyError] != 1 || len(r.Errors) == 0 || r.Leaked != 0 {
		t.Errorf("%+v", r)
	}
}

func TestAReportIsNotCleanWhenAnythingIsWrong(t *testing.T) {
	clean := Report{Results: 1, Launches: 4, CrossStreamLaunches: 2}
	if !clean.Clean() {
		t.Fatal("the clean report is not clean")
	}
	for name, spoil := range map[string]func(*Report){
		"a finding":             func(r *Report) { r.Findings = map[string]uint64{"leak": 1} },
		"a wrong result":        func(r *Report) { r.Wrong = 1 },
		"no results":            func(r *Report) { r.Results = 0 },
		"a leak":                func(r *Report) { r.Leaked = 1 },
		"drift":                 func(r *Report) { r.DriftBytes = -1 },
		"an error":              func(r *Report) { r.Errors = []string{"lost"} },
		"a refusal":             func(r *Report) { r.Refused = 1 },
		"an untrue refusal":     func(r *Report) { r.RefusedUntruly = 1 },
		"a dropped span":        func(r *Report) { r.SpansDropped = 1 },
		"too little cross work": func(r *Report) { r.CrossStreamLaunches = 1 },
	} {
		r := clean
		if spoil(&r); r.Clean() {
			t.Errorf("a report with %s is clean", name)
		}
	}
}

func TestErrorsAreListedOnce(t *testing.T) {
	one, two := errors.New("one"), errors.New("two")
	if got := lines(errors.Join(two, one, fmt.Errorf("%w", two))); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("got %q", got)
	}
	if lines(nil) != nil {
		t.Error("no error has lines")
	}
}

func TestAnUnknownBugIsRefusedWithTheKindsThereAre(t *testing.T) {
	_, err := NewPlant("gremlins")
	if err == nil {
		t.Fatal("gremlins can be planted")
	}
	want := []string{"double-free", "foreign-free", "leak", "missing-fence", "oob-read", "oob-write", "oom",
		"stale-handle", "sticky-error",
		"uaf-read", "uaf-write", "underflow", "use-before-alloc-ready"}
	if !slices.Equal(Kinds(), want) {
		t.Errorf("kinds %q, want %q", Kinds(), want)
	}
	for _, kind := range want {
		if !strings.Contains(err.Error(), kind) {
			t.Errorf("%v does not name %s", err, kind)
		}
	}
}

func TestADemoCountsRefusalsThatContradictThemselves(t *testing.T) {
	panics := audit.Listen(func(error) {})
	t.Cleanup(func() { audit.Listen(panics) })
	rt, err := fencepost.Open(t.Context(), fencepost.Config{Device: fencepost.Sim, Streams: Streams})
	must.Do(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	refuseOnce := sync.OnceFunc(func() {
		_ = refuse.Budget(&core.OutOfBudgetError{Requested: 10, Remaining: 20, Limit: 100})
		cancel()
	})
	d, err := New(rt, func(ctx context.Context) (context.Context, func()) { return ctx, refuseOnce }, nil)
	must.Do(t, err)
	runErr := d.Run(ctx)
	left, closeErr := rt.Close(t.Context())
	r := d.Finish(left, metrics.SpanCounts{}, runErr, closeErr)
	if r.RefusedUntruly != 1 || r.FirstUntruth == "" || r.Clean() {
		t.Errorf("%d refusals are untrue, the first %q", r.RefusedUntruly, r.FirstUntruth)
	}
}
