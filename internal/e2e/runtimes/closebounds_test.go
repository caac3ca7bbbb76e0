package runtimes_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
)

// Any code of the program may block while Close calls it. Close returns all the same and names the
// code. It goes on when that returns: a second Close waits for it, and says what came of it.
// Where the code ends its goroutine or panics, the leak is told too.
func TestCloseEndsWhateverTheProgramsCodeDoes(t *testing.T) {
	before := slog.Default()
	slog.SetDefault(slog.New(slog.DiscardHandler)) // which is told of the panics
	defer slog.SetDefault(before)
	for _, callback := range []string{"sink", "sampler", "span start", "span end", "logger", "OnFinding", "OnHealth",
		"TelemetryLost", "layer around the guard", "layer around the budget"} {
		for _, act := range []string{"blocks", "exits", "panics"} {
			t.Run(callback+"/"+act, func(t *testing.T) {
				t.Parallel()
				closeEnds(t, callback, act)
			})
		}
	}
}

func closeEnds(t *testing.T, callback, act string) {
	u := &userCode{callback: callback, act: act, at: "Close", acting: make(chan struct{}), acted: make(chan struct{}),
		release: make(chan struct{})}
	u.step.Store("Open")
	cfg := fencepost.Config{Guard: "sample:1", LogSinks: []logging.Sink{u}, LogLevel: logging.Uses, CloseTimeout: hangs,
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSampler(u), sdktrace.WithSpanProcessor(u)),
		OnFinding:      func(core.Finding) { u.called("OnFinding") }, OnHealth: func(core.Health) { u.called("OnHealth") },
		TelemetryLost: func() uint64 { u.called("TelemetryLost"); return 0 },
		Layers: fencepost.Layers{AroundBudget: u.layer("layer around the budget"),
			AroundGuard: u.layer("layer around the guard")}}
	cfg.Findings.Logger = slog.New(u)
	u.rt = e2e.OpenDirty(t, cfg)
	rt := u.rt
	e2e.Allocate(t, rt, 3000, core.DefaultStream, "leak")
	u.step.Store("Close")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	type closed struct {
		left core.Leftover
		err  error
	}
	first := make(chan closed, 1)
	go func() {
		left, err := rt.Close(ctx)
		first <- closed{left, err}
	}()
	select {
	case got := <-first:
		if act == "blocks" && u.did.Load() && len(got.left.Leaks) == 0 && (!errors.Is(got.err, context.DeadlineExceeded) ||
			!strings.Contains(got.err.Error(), "(*userCode).called")) {
			t.Errorf("Close says %v", got.err)
		}
	case <-time.After(hangs):
		t.Error("Close does not return")
	}
	close(u.release)
	left, err := rt.Close(t.Context())
	if len(left.Leaks) != 1 && act == "blocks" { // else it may say that it was broken off
		t.Errorf("Close in the end: %+v, %v", left, err)
	}
	if n := rt.Findings().Counts()[names.FindingLeak]; n != 1 {
		t.Errorf("%d leaks are told: %v", n, err)
	}
	if u.did.Load() {
		<-u.acted
	} else if callback != "TelemetryLost" && callback != "OnHealth" {
		t.Errorf("Close does not call %s", callback)
	}
}
