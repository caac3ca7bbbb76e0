// Package pathtest has layers for tests of the one path of allocations and frees: one that takes part in it, counts,
// and declines at random, and one that knows nothing of it.
package pathtest

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
	"github.com/fencepost-gpu/fencepost/internal/path"
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

// Gate is a layer that takes part in the path, and counts what was served at once and what was prepared. It
// declines one in OneIn of the tries, before or after the layers beneath are asked to serve at once.
type Gate struct {
	core.Resource
	path        *path.Path
	seed, oneIn uint64
	asked       atomic.Uint64
	// AtOnce are the allocations and frees that the backend served at once, Prepared the others, and Declined the
	// tries that this layer did not let pass.
	AtOnce, Prepared, Declined Ways
	// Ordinary are those of AtOnce that were ordinary: see package path.
	Ordinary Ways
}

// Ways counts allocations and frees.
type Ways struct{ Allocations, Frees atomic.Uint64 }

// NewGate puts a gate above upstream. oneIn is 0 for one that declines nothing; what it declines
// otherwise depends on the seed and on how often it was asked.
func NewGate(upstream core.Resource, seed, oneIn uint64) *Gate {
	g := &Gate{Resource: upstream, seed: seed, oneIn: oneIn}
	g.path = path.Over(upstream, false).Extend(g, gate{Gate: g}, g.ordinary())
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
func (g *Gate) SharedRecords() (core.Resource, *path.Records) {
	return g, g.path.Below.Shared(g.Resource)
}

// Path is the gate's.
func (g *Gate) Path() *path.Path { return g.path }

// Allocate allocates.
func (g *Gate) Allocate(ctx context.Context, req core.Request) (b core.Block, err error) {
	err = g.path.Allocate(ctx, nil, &req, &b)
	return b, err
}

// Deallocate frees.
func (g *Gate) Deallocate(ctx context.Context, id core.BlockID) (b core.Block, err error) {
	err = g.path.Deallocate(ctx, nil, &id, &b)
	return b, err
}

// mix is the step of the generator SplitMix64.
func mix(x uint64) uint64 {
	x *= 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// gate is the gate's share of the path.
type gate struct {
	path.Simple
	*Gate
}

// ordinary declines at random, too, and counts.
func (g *Gate) ordinary() *path.Ordinary {
	passes := func(of func(*Ways) *atomic.Uint64) bool {
		if g.draws() {
			of(&g.Declined).Add(1)
			return false
		}
		return true
	}
	note := func(of func(*Ways) *atomic.Uint64) func(*path.Step) {
		return func(*path.Step) {
			of(&g.AtOnce).Add(1)
			of(&g.Ordinary).Add(1)
		}
	}
	allocations := func(w *Ways) *atomic.Uint64 { return &w.Allocations }
	frees := func(w *Ways) *atomic.Uint64 { return &w.Frees }
	return &path.Ordinary{
		LeavesAlone: func(*path.Lane, int64, int64, monotime.Instant) bool { return passes(allocations) },
		MayKeep:     func(*path.Step) bool { return passes(frees) },
		Allocated:   note(allocations),
		Freed:       note(frees),
	}
}

// Allocate declines at random.
func (g gate) Allocate(o *path.Op) bool {
	return g.serve(o, g.path.Below.Layer.Allocate, func(w *Ways) *atomic.Uint64 { return &w.Allocations })
}

// Deallocate is Allocate for a free.
func (g gate) Deallocate(o *path.Op) bool {
	return g.serve(o, g.path.Below.Layer.Deallocate, func(w *Ways) *atomic.Uint64 { return &w.Frees })
}

// most is how often one operation is declined.
const most = 3

func (g gate) serve(o *path.Op, below func(*path.Op) bool, of func(*Ways) *atomic.Uint64) bool {
	declined := o.Number(g.path)
	if g.draws() && declined < most {
		of(&g.Declined).Add(1)
		o.KeepNumber(g.path, declined+1)
		return o.Decline(g.path)
	}
	o.NotAtOnce = o.NotAtOnce || g.draws()
	if !below(o) {
		return false
	}
	way := &g.Prepared
	if o.AtOnce {
		way = &g.AtOnce
	}
	of(way).Add(1)
	return true
}

// draws reports whether something is declined, at random.
func (g *Gate) draws() bool {
	return g.oneIn > 0 && mix(g.seed+g.asked.Add(1))%g.oneIn == 0
}

// Stranger is a decorator of a user's own: it has no path, and counts the calls that it
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
