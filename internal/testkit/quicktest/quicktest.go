// Package quicktest has layers for tests of the quick path: one that takes part in it, counts,
// and declines at random, and one that knows nothing of it.
package quicktest

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/path"
	"github.com/fencepost-gpu/fencepost/internal/quick"
)

// Seed is that of a test which draws at random, and is logged. FENCEPOST_SEED repeats it.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("FENCEPOST_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("FENCEPOST_SEED=%s: %v", text, err)
		}
	}
	t.Logf("seed %d; FENCEPOST_SEED repeats it", seed)
	return seed
}

// Gate is a layer that forwards everything, and counts which way it came: on the quick path or the
// ordinary one. It declines one in OneIn of what comes by the quick path, before it asks below.
type Gate struct {
	core.Resource
	path, below *quick.Path
	seed, oneIn uint64
	asked       atomic.Uint64
	// Quick are the allocations and frees that were served by the quick path, Ordinary those that
	// came by the other one, and Declined those that this layer did not let pass.
	Quick, Ordinary, Declined Ways
}

// Ways counts allocations and frees.
type Ways struct{ Allocations, Frees atomic.Uint64 }

// NewGate puts a gate above upstream. oneIn is 0 for one that declines nothing; what it declines
// otherwise depends on the seed and on how often it was asked.
func NewGate(upstream core.Resource, seed, oneIn uint64) *Gate {
	g := &Gate{Resource: upstream, below: quick.Of(upstream), seed: seed, oneIn: oneIn}
	g.path = g.below.Extend(g, &gateForm{g})
	return g
}

// Put is the layer of a gate, which it sets.
func Put(to **Gate, seed, oneIn uint64) core.Layer {
	return func(upstream core.Resource) (core.Resource, error) {
		g := NewGate(upstream, seed, oneIn)
		if to != nil {
			*to = g
		}
		return g, nil
	}
}

// String is "gate(upstream)".
func (g *Gate) String() string { return "gate(" + g.Resource.String() + ")" }

// Unwrap is the upstream.
func (g *Gate) Unwrap() core.Resource { return g.Resource }

// SharedRecords are the upstream's.
func (g *Gate) SharedRecords() (core.Resource, *path.Records) { return g, path.SharedBy(g.Resource) }

// QuickPath is the gate's.
func (g *Gate) QuickPath() *quick.Path { return g.path }

// Allocate begins the quick path if nobody above has, and forwards otherwise.
func (g *Gate) Allocate(ctx context.Context, req core.Request) (b core.Block, err error) {
	if g.path.Allocate(ctx, &req, &b) {
		return b, nil
	}
	g.Ordinary.Allocations.Add(1)
	return g.Resource.Allocate(ctx, req)
}

// Deallocate is Allocate for a free.
func (g *Gate) Deallocate(ctx context.Context, id core.BlockID) (b core.Block, err error) {
	if g.path.Deallocate(ctx, &id, &b) {
		return b, nil
	}
	g.Ordinary.Frees.Add(1)
	return g.Resource.Deallocate(ctx, id)
}

// declines draws whether the next operation is declined.
func (g *Gate) declines() bool {
	return g.oneIn > 0 && mix(g.seed+g.asked.Add(1))%g.oneIn == 0
}

// mix is the step of the generator SplitMix64.
func mix(x uint64) uint64 {
	x *= 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

type gateForm struct{ g *Gate }

// Allocate declines at random.
func (f *gateForm) Allocate(o *quick.Op) bool {
	if f.g.declines() {
		f.g.Declined.Allocations.Add(1)
		return false
	}
	ok := f.g.below.Layer.Allocate(o)
	if ok {
		f.g.Quick.Allocations.Add(1)
	}
	return ok
}

// Deallocate is Allocate for a free.
func (f *gateForm) Deallocate(o *quick.Op) bool {
	if f.g.declines() {
		f.g.Declined.Frees.Add(1)
		return false
	}
	ok := f.g.below.Layer.Deallocate(o)
	if ok {
		f.g.Quick.Frees.Add(1)
	}
	return ok
}

// Stranger is a decorator of somebody's own: it has no quick path, and counts the calls that it
// sees.
type Stranger struct {
	core.Resource
	// Calls are those that it saw, whatever came of them.
	Calls Ways
}

// PutStranger is the layer of a stranger, which it sets.
func PutStranger(to **Stranger) core.Layer {
	return func(upstream core.Resource) (core.Resource, error) {
		s := &Stranger{Resource: upstream}
		if to != nil {
			*to = s
		}
		return s, nil
	}
}

// String is "stranger(upstream)".
func (s *Stranger) String() string { return "stranger(" + s.Resource.String() + ")" }

// Unwrap is the upstream.
func (s *Stranger) Unwrap() core.Resource { return s.Resource }

// Allocate counts and forwards.
func (s *Stranger) Allocate(ctx context.Context, req core.Request) (core.Block, error) {
	s.Calls.Allocations.Add(1)
	return s.Resource.Allocate(ctx, req)
}

// Deallocate counts and forwards.
func (s *Stranger) Deallocate(ctx context.Context, id core.BlockID) (core.Block, error) {
	s.Calls.Frees.Add(1)
	return s.Resource.Deallocate(ctx, id)
}
