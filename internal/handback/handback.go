// Package handback gives back what a layer of the program's got from beneath it and did not hand
// over: because it panicked, or called runtime.Goexit, behind its upstream's call. No layer above
// knows of such a block, intent or claim.
package handback

import (
	"context"
	"slices"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/usercode"
)

// Around is the layer between two borders, which are no layers: their names are their upstreams'.
// The layer finds the lower one by the context that it is called with, or one that wraps it; of
// what it gets in another context nothing is given back.
func Around(layer core.Layer) core.Layer {
	if layer == nil {
		return nil
	}
	return func(up core.Resource) (core.Resource, error) {
		beneath, ok := up.(*border)
		if !ok {
			beneath = &border{Resource: up}
		}
		r, err := layer(beneath)
		switch {
		case err != nil, r == nil:
			return nil, err
		case r == core.Resource(beneath): // it builds nothing
			return up, nil
		}
		return &border{Resource: r, beneath: beneath}, nil
	}
}

// border is above a layer of the program's, beneath one, or both.
type border struct {
	core.Resource
	beneath *border // that of the layer which Resource is; nil if it is none of the program's
}

// Unwrap is the upstream.
func (b *border) Unwrap() core.Resource { return b.Resource }

// Allocate forwards. A block that the layer has got and does not return is freed.
func (b *border) Allocate(ctx context.Context, req core.Request) (core.Block, error) {
	call, above := b.begin(ctx), b.above(ctx)
	defer call.end()
	block, err := b.Resource.Allocate(call.context(ctx), req)
	if call.returned(); err == nil {
		above.got(func(g *goods) { g.blocks = append(g.blocks, block.ID) })
	}
	return block, err
}

// Deallocate forwards.
func (b *border) Deallocate(ctx context.Context, id core.BlockID) (core.Block, error) {
	call, above := b.begin(ctx), b.above(ctx)
	defer call.end()
	block, err := b.Resource.Deallocate(call.context(ctx), id)
	if call.returned(); err == nil {
		above.got(func(g *goods) { g.blocks = without(g.blocks, id) })
	}
	return block, err
}

// PrepareUse forwards. An intent that the layer has opened and does not return is aborted.
func (b *border) PrepareUse(ctx context.Context, req core.UseRequest) (core.Ticket, error) {
	call, above := b.begin(ctx), b.above(ctx)
	defer call.end()
	t, err := b.Resource.PrepareUse(call.context(ctx), req)
	if call.returned(); err == nil {
		above.got(func(g *goods) { g.tickets = append(g.tickets, t) })
	}
	return t, err
}

// FinishUse forwards, and ends an intent that the layer does not.
func (b *border) FinishUse(ctx context.Context, t core.Ticket) error {
	call := b.begin(ctx)
	defer call.end()
	defer call.finish(t)
	err := b.Resource.FinishUse(call.context(ctx), t)
	call.returned()
	return err
}

// AbortUse forwards, and ends an intent that the layer does not.
func (b *border) AbortUse(ctx context.Context, t core.Ticket) error {
	call := b.begin(ctx)
	defer call.end()
	defer call.abort(t)
	err := b.Resource.AbortUse(call.context(ctx), t)
	call.returned()
	return err
}

// Reserve forwards. A claim that the layer has got and does not return is released.
func (b *border) Reserve(ctx context.Context, bytes uint64, tag core.Tag) (core.Claim, error) {
	call, above := b.begin(ctx), b.above(ctx)
	defer call.end()
	claim, err := b.Resource.Reserve(call.context(ctx), bytes, tag)
	if call.returned(); err == nil {
		above.got(func(g *goods) { g.claims = append(g.claims, claim.ID) })
	}
	return claim, err
}

// ReleaseClaim forwards.
func (b *border) ReleaseClaim(ctx context.Context, id core.ClaimID) error {
	call, above := b.begin(ctx), b.above(ctx)
	defer call.end()
	err := b.Resource.ReleaseClaim(call.context(ctx), id)
	if call.returned(); err == nil {
		above.got(func(g *goods) { g.claims = without(g.claims, id) })
	}
	return err
}

func without[T comparable](list []T, one T) []T {
	return slices.DeleteFunc(list, func(t T) bool { return t == one })
}

// call is one call of a layer of the program's. It is the context that the layer is called with.
type call struct {
	context.Context
	beneath *border
	ok      bool

	mu    sync.Mutex
	ended bool
	goods goods
}

// goods are what a layer has got during a call, and has not given back.
type goods struct {
	blocks  []core.BlockID
	tickets []core.Ticket
	claims  []core.ClaimID
}

// begin is nil if there is no layer of the program's beneath.
func (b *border) begin(ctx context.Context) *call {
	if b.beneath == nil {
		return nil
	}
	return &call{Context: ctx, beneath: b.beneath}
}

type callKey struct{}

// above is the call of the layer above, which got ctx, nil if there is none. Ask it before the
// upstream is called: ctx may be the program's, and panic.
func (b *border) above(ctx context.Context) *call {
	if c, ok := ctx.Value(callKey{}).(*call); ok && c.beneath == b {
		return c
	}
	return nil
}

// Value is the call itself, or what it wraps has under key.
func (c *call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// SpanRef passes the span on: see [core.SpanOf].
func (c *call) SpanRef() core.SpanRef { return core.SpanOf(c.Context) }

// context is that of the call.
func (c *call) context(ctx context.Context) context.Context {
	if c == nil {
		return ctx
	}
	return c
}

// got changes what the layer has. A goroutine of the layer's that outlives the call keeps what it
// gets.
func (c *call) got(change func(*goods)) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		change(&c.goods)
	}
}

// returned notes that the layer's function has returned.
func (c *call) returned() {
	if c != nil {
		c.ok = true
	}
}

// end gives back what a layer has got that did not return.
func (c *call) end() {
	if c == nil {
		return
	}
	c.mu.Lock()
	left := c.goods
	c.goods, c.ended = goods{}, true
	c.mu.Unlock()
	if c.ok {
		return
	}
	ctx := context.WithoutCancel(c.Context)
	defer usercode.All(left.claims, func(id core.ClaimID) { _ = c.beneath.ReleaseClaim(ctx, id) })
	defer usercode.All(left.blocks, func(id core.BlockID) { _, _ = c.beneath.Deallocate(ctx, id) })
	usercode.All(left.tickets, func(t core.Ticket) {
		if t.IsOpen() {
			_ = c.beneath.AbortUse(ctx, t)
		}
	})
}

// finish ends an intent that the layer did not end before it panicked: its launch was enqueued.
func (c *call) finish(t core.Ticket) {
	if c != nil && !c.ok && t.IsOpen() {
		_ = c.beneath.FinishUse(context.WithoutCancel(c.Context), t)
	}
}

// abort is finish of an intent whose launch was not enqueued.
func (c *call) abort(t core.Ticket) {
	if c != nil && !c.ok && t.IsOpen() {
		_ = c.beneath.AbortUse(context.WithoutCancel(c.Context), t)
	}
}
