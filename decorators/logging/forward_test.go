package logging

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// budgeted is a fake whose claims work, and which counts the calls that the
// fake does not.
type budgeted struct {
	*coretest.Fake
	calls []string
}

func (f *budgeted) note(name string) { f.calls = append(f.calls, name) }

func (f *budgeted) Reserve(_ context.Context, bytes uint64, tag core.Tag) (core.Claim, error) {
	f.note("Reserve")
	return core.Claim{ID: 5, Bytes: bytes, Tag: tag}, nil
}

func (f *budgeted) ReleaseClaim(_ context.Context, id core.ClaimID) error {
	f.note("ReleaseClaim")
	return nil
}

func (f *budgeted) State(id core.BlockID) core.BlockState {
	f.note("State")
	return f.Fake.State(id)
}

func (f *budgeted) Stats() core.Stats {
	f.note("Stats")
	return f.Fake.Stats()
}

func (f *budgeted) FreedOn(id core.StreamID) core.FreeCounters {
	f.note("FreedOn")
	return f.Fake.FreedOn(id)
}

func (f *budgeted) Subscribe(l core.Listener) {
	f.note("Subscribe")
	f.Fake.Subscribe(l)
}

func (f *budgeted) Features() core.Features {
	f.note("Features")
	return core.Reservations
}

func (f *budgeted) took(t *testing.T, method string) {
	t.Helper()
	var got []string
	for _, c := range append(f.Calls(), f.calls...) {
		got = append(got, strings.Fields(c)[0])
	}
	f.calls = nil
	if !slices.Equal(got, []string{method}) {
		t.Errorf("upstream saw %v, want one %s", got, method)
	}
}

type hears struct{ released []core.Block }

func (h *hears) Released(b core.Block) { h.released = append(h.released, b) }

func TestEveryMethodReachesTheUpstreamOnce(t *testing.T) {
	for _, sinks := range [][]Sink{nil, {NewRing(8)}} {
		for _, level := range []Level{Operations, Uses} {
			up := &budgeted{Fake: coretest.NewFake(3)}
			r := must.Get(New(up, Config{Level: level, Sinks: sinks}))(t)
			up.calls = nil // a listener, at the level Uses
			forwardAll(t, r, up)
		}
	}
}

func forwardAll(t *testing.T, r *Resource, up *budgeted) {
	t.Helper()
	var h hears
	r.Subscribe(&h)
	up.took(t, "Subscribe")
	block, err := r.Allocate(ctx, core.Request{Bytes: 64, Stream: 4})
	up.took(t, "Allocate")
	use := core.UseRequest{Uses: []core.Use{{Block: block.ID, Access: core.Read}}}
	finish, err2 := r.PrepareUse(ctx, use)
	up.took(t, "PrepareUse")
	err3 := r.FinishUse(ctx, finish)
	up.took(t, "FinishUse")
	abort, err4 := r.PrepareUse(ctx, use)
	up.took(t, "PrepareUse")
	err5 := r.AbortUse(ctx, abort)
	up.took(t, "AbortUse")
	err6 := r.RecordUse(ctx, block.ID, 1)
	up.took(t, "RecordUse")
	claim, err7 := r.Reserve(ctx, 9, "x")
	up.took(t, "Reserve")
	err8 := r.ReleaseClaim(ctx, claim.ID)
	up.took(t, "ReleaseClaim")
	if claim.ID != 5 || claim.Bytes != 9 || claim.Tag != "x" {
		t.Errorf("claim %+v", claim)
	}
	freed, err9 := r.Deallocate(ctx, block.ID)
	up.took(t, "Deallocate")
	if freed.State != core.Retired || freed.ID != block.ID {
		t.Errorf("freed %+v", freed)
	}
	err10 := r.ReapPending(ctx)
	up.took(t, "ReapPending")
	questions(t, r, up, block)
	err11 := r.Drain(ctx)
	up.took(t, "Drain")
	expect.Success(t, errors.Join(err, err2, err3, err4, err5, err6, err7, err8, err9, err10, err11))
	if len(h.released) != 1 || h.released[0].ID != block.ID {
		t.Errorf("the listener heard %+v", h.released)
	}
}

func questions(t *testing.T, r *Resource, up *budgeted, block core.Block) {
	t.Helper()
	if got := r.State(block.ID); got != core.Retired {
		t.Errorf("state %v", got)
	}
	up.took(t, "State")
	if got := r.Stats(); got.Pending.Bytes != 64 {
		t.Errorf("stats %+v", got)
	}
	up.took(t, "Stats")
	if got := r.FreedOn(4); got.Queued != 64 {
		t.Errorf("free counters %+v", got)
	}
	up.took(t, "FreedOn")
	if got := r.Features(); got != core.Reservations {
		t.Errorf("features %v", got)
	}
	up.took(t, "Features")
	if r.Ordinal() != 3 || r.Unwrap() != core.Resource(up) || r.String() != "logging(fake:3)" {
		t.Errorf("ordinal %d, string %q", r.Ordinal(), r)
	}
}

// failing is a sink that does not work.
type failing struct {
	Sink
	fail func()
}

func (f failing) Put(Record) { f.fail() }

// A sink that panics costs its own record. A block or claim that no caller got, because a sink
// ended the goroutine, is given back.
func TestASinkThatDoesNotReturnLosesNoClaimAndNoBlock(t *testing.T) {
	for _, exits := range []bool{false, true} {
		up := &budgeted{Fake: coretest.NewFake(0)}
		fail := func() { panic("the sink's bug") }
		if exits {
			fail = runtime.Goexit
		}
		other := NewRing(8)
		r := must.Get(New(up, Config{Sinks: []Sink{failing{other, fail}}}))(t)
		var group sync.WaitGroup
		var reserved, allocated bool
		group.Go(func() {
			_, err := r.Reserve(t.Context(), 9, "x")
			reserved = err == nil
		})
		group.Wait()
		if slices.Contains(up.calls, "ReleaseClaim") != exits || reserved == exits {
			t.Errorf("exits %v: the caller got the claim: %v, and the upstream had %v", exits, reserved, up.calls)
		}
		group.Go(func() {
			_, err := r.Allocate(t.Context(), core.Request{Bytes: 9})
			allocated = err == nil
		})
		group.Wait()
		if st := up.Fake.Stats(); st.Live.Blocks != 0 != allocated || st.Allocations != 1 || allocated == exits {
			t.Errorf("exits %v: the caller got the block: %v, and the books are %+v", exits, allocated, st)
		}
	}
}
