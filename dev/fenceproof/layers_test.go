package fenceproof

import (
	"slices"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/budget"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/dev/proof"
	"github.com/fencepost-gpu/fencepost/dev/proof/program"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

// The layers, each with options that must change nothing about fences. A guard
// that fills and compares has launches of its own: those stacks are compared
// by the values of their programs, in dev/eval/gputest and in the conformance
// suite.
var fenceLayers = map[string]core.Layer{
	"log": func(up core.Resource) (core.Resource, error) {
		return logging.New(up, logging.Config{Sinks: []logging.Sink{logging.NewRing(1 << 8)}})
	},
	"log uses": func(up core.Resource) (core.Resource, error) {
		return logging.New(up, logging.Config{Level: logging.Uses, Sinks: []logging.Sink{logging.NewRing(1 << 8)}})
	},
	"budget": func(up core.Resource) (core.Resource, error) {
		return budget.New(up, budget.Config{Limit: 1 << 30})
	},
	"guard off": func(up core.Resource) (core.Resource, error) {
		return debugguard.New(up, debugguard.Config{Mode: debugguard.Off})
	},
	"ledger": func(up core.Resource) (core.Resource, error) {
		return debugguard.New(up, debugguard.Config{Mode: debugguard.Ledger})
	},
	"metrics": func(up core.Resource) (core.Resource, error) {
		return telemetry.NewResource(up, telemetry.Config{})
	},
	"traced": func(up core.Resource) (core.Resource, error) {
		return telemetry.NewResource(up, telemetry.Config{TracerProvider: sdktrace.NewTracerProvider()})
	},
	"traced launches": func(up core.Resource) (core.Resource, error) {
		return telemetry.NewResource(up, telemetry.Config{TracerProvider: sdktrace.NewTracerProvider(), Level: telemetry.LevelLaunches})
	},
}

var fenceStacks = [][]string{
	{"log"}, {"log uses"}, {"budget"}, {"guard off"}, {"ledger"}, {"metrics"}, {"traced"},
	{"log", "budget", "guard off", "metrics"},
	{"log", "budget", "ledger", "traced"},
	{"log uses", "budget", "ledger", "traced launches"},
	{"budget", "log", "guard off", "metrics"},
	{"ledger", "budget", "log uses", "traced"},
	{"traced", "log", "budget", "ledger"},
	{"log", "metrics", "ledger", "budget"},
}

// TestEveryStackGivesTheSameFences runs programs over the bare backend and over
// stacks of layers: what arrives at the device is the same, call by call.
func TestEveryStackGivesTheSameFences(t *testing.T) {
	bound := program.Bounds{Streams: 3, Blocks: 3, Ops: 4, Kinds: []program.Kind{program.Launch, program.Free, program.Sync, program.Abort, program.Record}}
	bare := openLayers(t)
	var stacks []*proof.Runner
	for _, names := range fenceStacks {
		var layers []core.Layer
		for _, name := range names {
			layers = append(layers, fenceLayers[name])
		}
		stacks = append(stacks, openLayers(t, layers...))
	}
	skipped := skipped
	if testing.Short() {
		skipped *= 40
	}
	start, programs, runs := time.Now(), 0, 0
	bound.Each(1, func(p program.Program) bool {
		if programs++; len(p) == bound.Ops && programs%skipped != 0 {
			return true
		}
		proof.Explorer{Goroutines: 2}.Each(p, func(s proof.Schedule) bool {
			want, err := bare.Check(p, s)
			must.Do(t, err)
			history := bare.History().String()
			for i, r := range stacks {
				runs++
				got, err := r.Check(p, s)
				if err != nil {
					t.Fatalf("%v: %v", fenceStacks[i], err)
				}
				if got != want || r.History().String() != history {
					t.Errorf("%v\n%v\nover %v: %+v\n%v\nbare: %+v\n%s", p, slices.Clone(s), fenceStacks[i], got, r.History(), want, history)
				}
			}
			return !t.Failed()
		})
		return !t.Failed()
	})
	t.Logf("%d programs, %d runs over %d stacks, in %v", programs, runs, len(stacks), time.Since(start).Round(time.Millisecond))
}

// skipped is how many of the longest programs go by for one that is run.
const skipped = 8

func openLayers(t *testing.T, layers ...core.Layer) *proof.Runner {
	t.Helper()
	r := must.Get(proof.NewRunner(proof.Config{Streams: 3, Layers: layers}))(t)
	t.Cleanup(func() {
		expect.Success(t, r.Close())
	})
	return r
}
