package handback_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/decorators/budget"
	"github.com/fencepost-gpu/fencepost/internal/handback"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// unruly is a layer that does something once, before or behind one of its upstream's calls.
type unruly struct {
	core.Resource
	call   string
	behind bool
	act    func()
	wraps  bool
}

type key struct{}

// around calls the upstream.
func (u *unruly) around(ctx context.Context, call string, f func(context.Context)) {
	act := func() {
		if call == u.call {
			u.call = ""
			u.act()
		}
	}
	if u.wraps {
		ctx = context.WithValue(ctx, key{}, call)
	}
	if !u.behind {
		act()
	}
	f(ctx)
	if u.behind {
		act()
	}
}

func (u *unruly) Unwrap() core.Resource { return u.Resource }

func (u *unruly) Allocate(ctx context.Context, req core.Request) (b core.Block, err error) {
	u.around(ctx, "Allocate", func(ctx context.Context) {
		if b, err = u.Resource.Allocate(ctx, req); err == nil { // takes its time, and another one
			_, err = u.Resource.Deallocate(ctx, b.ID)
			b, err = u.Resource.Allocate(ctx, req)
		}
	})
	return b, err
}

func (u *unruly) Deallocate(ctx context.Context, id core.BlockID) (b core.Block, err error) {
	u.around(ctx, "Deallocate", func(ctx context.Context) { b, err = u.Resource.Deallocate(ctx, id) })
	return b, err
}

func (u *unruly) PrepareUse(ctx context.Context, req core.UseRequest) (t core.Ticket, err error) {
	u.around(ctx, "PrepareUse", func(ctx context.Context) { t, err = u.Resource.PrepareUse(ctx, req) })
	return t, err
}

func (u *unruly) FinishUse(ctx context.Context, t core.Ticket) (err error) {
	u.around(ctx, "FinishUse", func(ctx context.Context) { err = u.Resource.FinishUse(ctx, t) })
	return err
}

func (u *unruly) AbortUse(ctx context.Context, t core.Ticket) (err error) {
	u.around(ctx, "AbortUse", func(ctx context.Context) { err = u.Resource.AbortUse(ctx, t) })
	return err
}

func (u *unruly) Reserve(ctx context.Context, bytes uint64, tag core.Tag) (c core.Claim, err error) {
	u.around(ctx, "Reserve", func(ctx context.Context) { c, err = u.Resource.Reserve(ctx, bytes, tag) })
	return c, err
}

func (u *unruly) ReleaseClaim(ctx context.Context, id core.ClaimID) (err error) {
	u.around(ctx, "ReleaseClaim", func(ctx context.Context) { err = u.Resource.ReleaseClaim(ctx, id) })
	return err
}

// runs calls f on a goroutine of its own, however that ends.
func runs(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		f()
	}()
	<-done
}

// Whichever of the layers does not return from whichever call: what its caller did not get is given
// back, what its caller has stays, and the intent that it was to end is ended.
func TestWhatALayerDoesNotHandOverIsGivenBack(t *testing.T) {
	calls := []string{"Allocate", "Deallocate", "PrepareUse", "FinishUse", "AbortUse", "Reserve", "ReleaseClaim"}
	for act, f := range map[string]func(){"panics": func() { panic("the layer's bug") }, "exits": runtime.Goexit} {
		for _, call := range calls {
			for _, outer := range []bool{false, true} {
				for _, behind := range []bool{false, true} {
					for _, wraps := range []bool{false, true} {
						t.Run(fmt.Sprintf("%s %s/outer=%v/behind=%v/wraps=%v", call, act, outer, behind, wraps), func(t *testing.T) {
							givesBack(t, call, outer, &unruly{behind: behind, act: f, wraps: wraps})
						})
					}
				}
			}
		}
	}
}

func givesBack(t *testing.T, call string, outer bool, bad *unruly) {
	ctx := context.Background()
	fake := coretest.NewFake(0)
	fake.ReleaseAtFree()
	good := &unruly{wraps: bad.wraps}
	layers := []*unruly{good, bad}
	if !outer {
		layers = []*unruly{bad, good}
	}
	own := func(u *unruly) core.Layer {
		return handback.Around(func(up core.Resource) (core.Resource, error) { u.Resource = up; return u, nil })
	}
	nothing := handback.Around(func(up core.Resource) (core.Resource, error) { return up, nil })
	top := must.Get(core.Chain(fake, core.With(budget.New, budget.Config{Limit: 1 << 20}), own(layers[0]), handback.Around(nil), nothing, own(layers[1])))(t)

	kept := must.Get(top.Allocate(ctx, core.Request{Bytes: 64, Stream: 1, Tag: "kept"}))(t)
	bad.call = call
	req := core.UseRequest{Stream: 1, Launch: "launch", Uses: []core.Use{{Block: kept.ID, Access: core.Write}}}
	var other core.Block
	var claim core.Claim
	runs(func() { other, _ = top.Allocate(ctx, core.Request{Bytes: 128, Stream: 1, Tag: "other"}) })
	for _, end := range []func(context.Context, core.Ticket) error{top.FinishUse, top.AbortUse} {
		var ticket core.Ticket
		runs(func() { ticket, _ = top.PrepareUse(ctx, req) })
		if ticket.IsOpen() {
			runs(func() { _ = end(ctx, ticket) })
		}
		if ticket.IsOpen() {
			t.Error("a ticket is open whose end was called")
		}
	}
	runs(func() { claim, _ = top.Reserve(ctx, 256, "claim") })
	if claim.ID != 0 {
		runs(func() { _ = top.ReleaseClaim(ctx, claim.ID) })
		_ = top.ReleaseClaim(ctx, claim.ID) // as a job does, if the first try did not return
	}
	if other.ID.Generation != 0 {
		runs(func() { _, _ = top.Deallocate(ctx, other.ID) })
		if top.State(other.ID) == core.Live { // the free was not done
			must.Get(top.Deallocate(ctx, other.ID))(t)
		}
	}
	if bad.call != "" {
		t.Fatalf("%s was never called", call)
	}
	if st := top.Stats(); st.Live.Blocks != 1 || st.Charged != kept.Bytes || st.Claims != 0 || st.OpenIntents != 0 || top.State(kept.ID) != core.Live {
		t.Errorf("besides the block that is kept, with %d bytes, there is %+v", kept.Bytes, st)
	}
	must.Get(top.Deallocate(ctx, kept.ID))(t)
}

// A layer that returns an error, or keeps what it gets for later, gives back itself.
func TestALayerThatReturnsKeepsWhatItHas(t *testing.T) {
	fake := coretest.NewFake(0)
	var had core.Block
	layer := handback.Around(func(up core.Resource) (core.Resource, error) { return &hoarder{Resource: up, had: &had}, nil })
	top := must.Get(core.Chain(fake, layer))(t)
	if _, err := top.Allocate(t.Context(), core.Request{Bytes: 64, Stream: 1}); err == nil {
		t.Fatal("the layer's error is lost")
	}
	if top.State(had.ID) != core.Live {
		t.Errorf("the block that the layer keeps is %v", top.State(had.ID))
	}
}

type hoarder struct {
	core.Resource
	had *core.Block
}

func (h *hoarder) Unwrap() core.Resource { return h.Resource }

func (h *hoarder) Allocate(ctx context.Context, req core.Request) (core.Block, error) {
	b, err := h.Resource.Allocate(ctx, req)
	*h.had = b
	return core.Block{}, fmt.Errorf("it is kept: %w, %v", core.ErrOutOfMemory, err)
}

func TestALayerBetweenBordersConforms(t *testing.T) {
	coretest.Run(t, func(t *testing.T) coretest.Subject {
		fake := coretest.NewFake(0)
		layer := func(up core.Resource) (core.Resource, error) { return &passing{up}, nil }
		inner := must.Get(core.Chain(fake, handback.Around(layer)))(t)
		return coretest.Subject{
			Resource: must.Get(core.Chain(inner, handback.Around(layer)))(t), Features: core.UseTracking | core.StreamOrdered, Streams: fake.Streams,
			FailNextFree: func() { fake.FailNext("Deallocate", errors.New("the device said no")) },
		}
	})
}

// passing passes everything on.
type passing struct{ core.Resource }

func (p *passing) Unwrap() core.Resource { return p.Resource }
