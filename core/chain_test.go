package core_test

import (
	"errors"
	"io"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
)

func faultsLayer(up core.Resource) (core.Resource, error) { return coretest.NewFaults(up), nil }

func TestChainComposesFromTheDeviceOutwards(t *testing.T) {
	base := coretest.NewFake(0)
	var order []string
	note := func(name string) core.Layer {
		return func(up core.Resource) (core.Resource, error) {
			order = append(order, name+" over "+up.String())
			return coretest.NewFaults(up), nil
		}
	}
	nothing := func(up core.Resource) (core.Resource, error) { return up, nil }
	stack, err := core.Chain(base, note("inner"), nil, nothing, note("outer"))
	succeed(t, "chain", err)
	mustBe(t, "stack", stack.String(), "faults(faults(fake:0))")
	mustBe(t, "number of layers built", len(order), 2)
	mustBe(t, "first", order[0], "inner over fake:0")
	mustBe(t, "second", order[1], "outer over faults(fake:0)")
	mustBe(t, "base", core.Base(stack), core.Resource(base))
}

func TestChainOfNothingIsTheBase(t *testing.T) {
	base := coretest.NewFake(0)
	stack, err := core.Chain(base)
	succeed(t, "chain", err)
	mustBe(t, "stack", stack, core.Resource(base))
	mustBe(t, "base of a base", core.Base(base), core.Resource(base))
}

func TestChainStopsAtTheFirstError(t *testing.T) {
	stack, err := core.Chain(coretest.NewFake(0), faultsLayer,
		func(core.Resource) (core.Resource, error) { return nil, io.ErrNoProgress },
		func(core.Resource) (core.Resource, error) {
			t.Error("a layer was built over a failed one")
			return nil, nil
		})
	mustBe(t, "whether the error is the layer's", errors.Is(err, io.ErrNoProgress), true)
	mustBe(t, "text", err.Error(), "wrapping faults(fake:0): "+io.ErrNoProgress.Error())
	if stack != nil {
		t.Errorf("a failed chain returned %v", stack)
	}
}

func TestNewRuntimeNeedsAResource(t *testing.T) {
	_, err := core.NewRuntime(nil, nil)
	mustBe(t, "whether the request was invalid", isInvalid(err, "resource"), true)
}

func TestRuntimeForwardsToItsResource(t *testing.T) {
	rt, fake, _ := fakeRuntime(t)
	b := alloc(t, rt, 64)
	mustBe(t, "ordinal", rt.Ordinal(), 0)
	mustBe(t, "name", rt.String(), "fake:0")
	mustBe(t, "resource", rt.Resource(), core.Resource(fake))
	mustBe(t, "tracking", rt.SupportsBlockUseTracking(), true)
	mustBe(t, "tracking of a direct backend", newRuntime(t, newDirect(), nil).SupportsBlockUseTracking(), false)
	mustBe(t, "state", rt.State(b.ID), core.Live)
	mustBe(t, "outstanding", rt.BytesOutstanding(), uint64(64))
	succeed(t, "record", rt.RecordBlockUse(t.Context(), b.ID, 1))
	ticket, err := rt.PrepareBlockUse(t.Context(), b.ID, 1, core.Read)
	succeed(t, "prepare", err)
	succeed(t, "abort", rt.AbortUse(t.Context(), ticket))
	_, err = rt.Reserve(t.Context(), 1, "")
	misuse(t, "reserve", err, "add decorators/budget")
	misuse(t, "release of a claim", rt.ReleaseClaim(t.Context(), 1), "add decorators/budget")
	_, err = rt.Deallocate(t.Context(), b.ID)
	succeed(t, "deallocate", err)
	mustBe(t, "outstanding while the free is pending", rt.BytesOutstanding(), uint64(64))
	succeed(t, "reap", rt.ReapPending(t.Context()))
	succeed(t, "drain", rt.Drain(t.Context()))
	mustBe(t, "outstanding after drain", rt.BytesOutstanding(), uint64(0))
	mustBe(t, "live", rt.Stats().Live, core.Amount{})
}
