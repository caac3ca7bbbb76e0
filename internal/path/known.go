package path

import (
	"context"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
)

// known is the newest context of a lane's operations that names no sampled span. A layer looks that
// up once, and the next operation with the same context finds it here.
//
// A lane that keeps a context keeps all that a request has hung on it. So the lane keeps it only
// while a reaper comes round, which calls [Lane.Forget] at each tick.
type known struct {
	// ctx and by are guarded by the lane's lock, and misses too. by is the layer that has looked.
	ctx context.Context
	by  *Path
	// misses counts the operations that came with other contexts, one after the other.
	misses uint8
	// keeps is closed, open or full. An operation reads it without the lock.
	keeps atomic.Uint32
}

const (
	closed = iota // the lane must keep no context until the next tick
	open          // it may keep one
	full          // it keeps one
)

// mostMisses is after how many a lane keeps no context until the next tick: to ask takes the lane's
// lock.
const mostMisses = 8

// lasting are the types of contexts that a lane keeps. They have three properties:
//   - The answers of such a context never change. A web framework may give one context of its own type to one
//     request after the other.
//   - They carry no [core.SpanRef].
//   - They are pointers, and so comparable.
var lasting = func() (types []reflect.Type) {
	type key struct{}
	value := context.WithValue(context.Background(), key{}, nil)
	cancelled, cancel := context.WithCancel(value)
	timed, stop := context.WithTimeout(value, time.Hour)
	cancel()
	stop()
	for _, ctx := range []context.Context{value, cancelled, timed} {
		if t := reflect.TypeOf(ctx); t.Kind() == reflect.Pointer {
			types = append(types, t)
		}
	}
	return types
}()

// lockIfKnown takes the lock if the lane knows from the layer that ctx names no sampled span.
func (l *Lane) lockIfKnown(ctx context.Context, by *Path) bool {
	k := &l.known
	if k.keeps.Load() != full {
		return false
	}
	l.mu.Lock()
	if k.by == by && k.ctx == ctx { // k.ctx can be compared: see lasting
		k.misses = 0
		return true
	}
	if k.misses++; k.misses >= mostMisses {
		k.forget(closed)
	}
	l.mu.Unlock()
	return false
}

// know has the lane, which is locked, keep a context.
func (l *Lane) know(ctx context.Context, by *Path) {
	k := &l.known
	if k.keeps.Load() != closed && slices.Contains(lasting, reflect.TypeOf(ctx)) {
		k.ctx, k.by = ctx, by
		k.keeps.Store(full)
	}
}

// forget gives up the context. The lane must be locked.
func (k *known) forget(next uint32) {
	k.ctx, k.by, k.misses = nil, nil, 0
	k.keeps.Store(next)
}

// Forget has the lane give up the context that it keeps, so that a request's objects do not outlive
// it. more says that Forget will be called again soon: until then the lane may keep another
// context. It waits for the lane's lock if there is something to do.
func (l *Lane) Forget(more bool) {
	next := uint32(closed)
	if more {
		next = open
	}
	if l.known.keeps.Load() == next {
		return
	}
	l.Lock()
	l.known.forget(next)
	l.Unlock()
}

// AllocateKnown is [Path.Allocate] if the lane knows from this layer that ctx names no sampled
// span. It reports whether that was so, and otherwise does nothing.
func (p *Path) AllocateKnown(ctx context.Context, req *core.Request, b *core.Block) (known bool, err error) {
	l, began := p.lanes.of(req.Stream), monotime.Now()
	if known = l.lockIfKnown(ctx, p); known {
		err = p.allocate(ctx, nil, l, core.SpanRef{}, began, req, b)
	}
	return known, err
}

// AllocateUnsampled is [Path.Allocate] with a context that names no sampled span, as the layer has
// found. The lane may keep it for [Path.AllocateKnown] and [Path.DeallocateKnown].
func (p *Path) AllocateUnsampled(ctx context.Context, req *core.Request, b *core.Block) error {
	l, began := p.lanes.of(req.Stream), monotime.Now()
	l.mu.Lock()
	l.know(ctx, p)
	return p.allocate(ctx, nil, l, core.SpanOf(ctx), began, req, b)
}

// DeallocateKnown is [Path.Deallocate] as AllocateKnown is Allocate.
func (p *Path) DeallocateKnown(ctx context.Context, id *core.BlockID, b *core.Block) (known bool, err error) {
	l, began := p.lanes.of(id.AllocStream), monotime.Now()
	if known = l.lockIfKnown(ctx, p); known {
		err = p.deallocate(ctx, nil, l, core.SpanRef{}, began, id, b)
	}
	return known, err
}

// DeallocateUnsampled is [Path.Deallocate] as AllocateUnsampled is Allocate.
func (p *Path) DeallocateUnsampled(ctx context.Context, id *core.BlockID, b *core.Block) error {
	l, began := p.lanes.of(id.AllocStream), monotime.Now()
	l.mu.Lock()
	l.know(ctx, p)
	return p.deallocate(ctx, nil, l, core.SpanOf(ctx), began, id, b)
}
