package demo

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// demoTime is how long a run takes on a machine that does nothing else.
const demoTime = 100 * time.Millisecond

// runUntil runs the demo for longer and longer until the report shows enough: on
// a busy machine a short run gets to nothing. The last report is returned if the
// time of the tests is half over.
func runUntil(t *testing.T, enough func(*Report) bool, kind, guard string, during func(*sim.Device)) *Report {
	t.Helper()
	return runUntilOver(t, string(fencepost.Async), enough, kind, guard, during)
}

func runUntilOver(t *testing.T, resource string, enough func(*Report) bool, kind, guard string, during func(*sim.Device)) *Report {
	t.Helper()
	end := time.Now().Add(5 * time.Minute)
	if deadline, ok := t.Deadline(); ok {
		end = time.Now().Add(time.Until(deadline) / 2)
	}
	for long := demoTime; ; long *= 2 {
		r := runDemoFor(t, resource, long, kind, guard, during)
		if enough(r) || time.Now().Add(2*long).After(end) {
			return r
		}
		t.Logf("%v showed too little: once more, for longer", long)
	}
}

// runDemoFor is a whole run; during, if not nil, is called beside it.
func runDemoFor(t *testing.T, resource string, long time.Duration, kind, guard string, during func(*sim.Device)) *Report {
	t.Helper()
	cfg := fencepost.Config{Device: fencepost.Sim, Resource: fencepost.Backend(resource), Guard: fencepost.GuardMode(guard), Streams: Streams,
		// Nothing planted leaves quarantine before it is misused, however slow
		// the machine is.
		GuardConfig: debugguard.Config{QuarantineBytes: 1 << 30, QuarantineAge: -1}}
	var plant *Plant
	if kind != "" {
		var err error
		if plant, err = NewPlant(kind); err != nil {
			t.Fatal(err)
		}
		cfg.OnFinding = plant.Watch
	}
	rt, err := fencepost.Open(t.Context(), cfg)
	must.Do(t, err)
	d, err := New(rt, nil, plant)
	must.Do(t, err)
	if during != nil {
		time.AfterFunc(50*time.Millisecond, func() { during(rt.Driver().(*sim.Device)) })
	}
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	runErr := d.Run(ctx)
	_ = d.Measure(t.Context()) // fails on a lost device, as does Close
	left, closeErr := rt.Close(t.Context())
	return d.Finish(left, metrics.SpanCounts{}, runErr, closeErr)
}
