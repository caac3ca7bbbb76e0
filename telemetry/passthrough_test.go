package telemetry_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

func TestConformance(t *testing.T) {
	coretest.Run(t, func(t *testing.T) coretest.Subject {
		r := newProbed(t, telemetry.Config{}) // both layers
		return coretest.Subject{Resource: r.Resource, Features: r.fake.Features(), Streams: r.fake.Streams}
	})
}

func TestProbeConformance(t *testing.T) {
	coretest.Run(t, func(t *testing.T) coretest.Subject {
		r := newTraced(t, telemetry.Config{})
		probe := must.Get(telemetry.NewProbe(r.fake, telemetry.LayerDriver, r.provider))(t)
		return coretest.Subject{Resource: probe, Features: r.fake.Features(), Streams: r.fake.Streams}
	})
}

// Every call reaches the upstream once, and its answer comes back, traced or
// not.
func TestEveryCallReachesTheUpstreamOnce(t *testing.T) {
	for _, cfg := range []telemetry.Config{{}, {Level: telemetry.LevelLaunches}, {Level: telemetry.LevelOff}} {
		r := newTraced(t, cfg)
		ctx := r.request(t)
		b := must.Get(r.Allocate(ctx, core.Request{Bytes: 64, Stream: 1, Tag: "t"}))(t)
		req := core.UseRequest{Stream: 1, Launch: "k", Uses: uses(core.Read, b)}
		must.Do(t, r.FinishUse(ctx, must.Get(r.PrepareUse(ctx, req))(t)))
		must.Do(t, r.AbortUse(ctx, must.Get(r.PrepareUse(ctx, req))(t)))
		must.Do(t, r.RecordUse(ctx, b.ID, 1))
		must.Do(t, r.ReapPending(ctx))
		must.Get(r.Deallocate(ctx, b.ID))(t)
		must.Do(t, r.Drain(ctx))
		var got []string
		for _, call := range r.fake.Calls() {
			op, _, _ := strings.Cut(call, " ")
			got = append(got, op)
		}
		want := []string{"Allocate", "PrepareUse", "FinishUse", "PrepareUse", "AbortUse", "RecordUse", "ReapPending", "Deallocate", "Drain"}
		if !slices.Equal(got, want) {
			t.Errorf("level %d: upstream saw %v, want %v", cfg.Level, got, want)
		}
	}
}

func TestReservationsReachTheUpstream(t *testing.T) {
	r := newTraced(t, telemetry.Config{})
	if _, err := r.Reserve(t.Context(), 64, "t"); err == nil {
		t.Error("the fake's refusal of Reserve was lost")
	}
	if err := r.ReleaseClaim(t.Context(), 1); err == nil {
		t.Error("the fake's refusal of ReleaseClaim was lost")
	}
	o := r.Operations()
	if o.Failed(oplog.OpReserve, metrics.ReasonStreamMisuse) != 1 || o.Failed(oplog.OpReleaseClaim, metrics.ReasonStreamMisuse) != 1 {
		t.Error("the refusals were not counted")
	}
	if o.Refusals(metrics.ReasonStreamMisuse) != 1 {
		t.Errorf("%d refusals, want that of Reserve", o.Refusals(metrics.ReasonStreamMisuse))
	}
}

type listener struct{ released int }

func (l *listener) Released(core.Block) { l.released++ }

func TestInspectionIsTheUpstreams(t *testing.T) {
	r := newTraced(t, telemetry.Config{})
	l := &listener{}
	r.Subscribe(l)
	b := must.Get(r.Allocate(t.Context(), core.Request{Bytes: 64, Stream: 1}))(t)
	must.Get(r.Deallocate(t.Context(), b.ID))(t)
	if r.State(b.ID) != core.Retired || r.FreedOn(1) != r.fake.FreedOn(1) || r.FreedOn(1).Queued != 64 {
		t.Errorf("state %v, freed %v", r.State(b.ID), r.FreedOn(1))
	}
	must.Do(t, r.Drain(t.Context()))
	if l.released != 1 {
		t.Errorf("the listener heard of %d releases, want 1", l.released)
	}
	if r.Stats() != r.fake.Stats() || r.Ordinal() != 0 || r.Features() != r.fake.Features() {
		t.Error("an answer is not the upstream's")
	}
	if r.Unwrap() != core.Resource(r.fake) || r.String() != "telemetry(fake:0)" {
		t.Errorf("%v wraps %v", r, r.Unwrap())
	}
}

func TestOperationsAreCounted(t *testing.T) {
	r := must.Get(telemetry.NewResource(newFencing(), telemetry.Config{}))(t)
	life(t.Context(), t, r)
	must.Do(t, r.Drain(t.Context()))
	o := r.Operations()
	for op, want := range map[oplog.Op]uint64{
		oplog.OpAllocate: 1, oplog.OpDeallocate: 1, oplog.OpPrepare: 2, oplog.OpFinish: 2, oplog.OpDrain: 1,
		oplog.OpAbort: 0, oplog.OpRefusal: 0, oplog.OpRelease: 0,
	} {
		if got := o.Succeeded(op); got != want {
			t.Errorf("%v: %d calls, want %d", op, got, want)
		}
	}
	if _, err := r.Allocate(t.Context(), core.Request{}); err == nil {
		t.Fatal("zero bytes were allocated")
	}
	if n := o.Calls(oplog.OpAllocate); n != 1 {
		t.Errorf("a snapshot has %d allocations, want 1: it must not change", n)
	}
	later := r.Operations()
	if later.Calls(oplog.OpAllocate) != 2 || later.Refusals(metrics.ReasonInvalidRequest) != 1 || later.Failed(oplog.OpAllocate, metrics.Reason(99)) != 0 {
		t.Errorf("%d calls, %d refusals", later.Calls(oplog.OpAllocate), later.Refusals(metrics.ReasonInvalidRequest))
	}
}
