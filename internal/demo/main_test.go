package demo

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// runDemo is a whole run; during, if not nil, is called beside it.
func runDemo(t *testing.T, kind, guard string, during func(*sim.Device)) *Report {
	t.Helper()
	cfg := fencepost.Config{Device: fencepost.Sim, Guard: guard, Streams: Streams,
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
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(rt, nil, plant)
	if err != nil {
		t.Fatal(err)
	}
	if during != nil {
		time.AfterFunc(50*time.Millisecond, func() { during(rt.Driver().(*sim.Device)) })
	}
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	runErr := d.Run(ctx)
	_ = d.Measure(t.Context()) // fails on a lost device, as does Close
	left, closeErr := rt.Close(t.Context())
	return d.Finish(left, telemetry.SpanCounts{}, runErr, closeErr)
}
