package budget

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// BenchmarkPair is one Allocate, Deallocate and notice, over a backend that
// does nothing: what the budget adds is the difference.
func BenchmarkPair(b *testing.B) {
	b.Run("bare", func(b *testing.B) { pairs(b, &leaf{}, core.Request{Bytes: 4096, Stream: 1, Tag: "sort.keys"}) })
	b.Run("budget", func(b *testing.B) {
		pairs(b, benchBudget(b), core.Request{Bytes: 4096, Stream: 1, Tag: "sort.keys"})
	})
	b.Run("claim", func(b *testing.B) {
		r := benchBudget(b)
		claim := must.Get(r.Reserve(context.Background(), 1<<20, "sort.keys"))(b)
		hold(b, r, core.Request{Bytes: 256, Stream: 1, Tag: "sort.keys", Claim: claim.ID})
		pairs(b, r, core.Request{Bytes: 4096, Stream: 1, Tag: "sort.keys", Claim: claim.ID})
	})
}

// BenchmarkPairCold is the pair with 1000 blocks alive that are freed in order.
func BenchmarkPairCold(b *testing.B) {
	r, ring := benchBudget(b), make([]core.BlockID, 1000)
	req := core.Request{Bytes: 4096, Stream: 1, Tag: "sort.keys"}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		at := &ring[i%len(ring)]
		if at.Generation != 0 {
			if _, err := r.Deallocate(b.Context(), *at); err != nil {
				b.Fatal(err)
			}
		}
		block, err := r.Allocate(b.Context(), req)
		if err != nil {
			b.Fatal(err)
		}
		*at = block.ID
	}
}

// BenchmarkPairParallel is the pair from all processors, each on its own stream, with a
// limit that is far, as near as lets all keep credit, and that just fits.
func BenchmarkPairParallel(b *testing.B) {
	b.Run("bare", func(b *testing.B) { parallelPairs(b, &apart{}) })
	fits := 4096 * uint64(runtime.GOMAXPROCS(0))
	for _, c := range []struct {
		name  string
		limit uint64
	}{{"far", 1 << 40}, {"near", fits + creditShare*4096}, {"full", fits}} {
		b.Run(c.name, func(b *testing.B) {
			r := must.Get(New(&apart{}, Config{Limit: c.limit}))(b)
			parallelPairs(b, r)
		})
	}
}

// apart is a leaf whose streams share nothing.
type apart struct {
	leaf
	generations [64]struct {
		last core.Generation
		_    [120]byte
	}
}

func (a *apart) Allocate(_ context.Context, r core.Request) (core.Block, error) {
	last := &a.generations[r.Stream].last
	*last += core.Generation(len(a.generations))
	id := core.BlockID{Ptr: 0x1000, Generation: *last + core.Generation(r.Stream), AllocStream: r.Stream}
	return core.Block{ID: id, Requested: r.Requested, Bytes: r.Bytes, Align: r.Align, Tag: r.Tag, State: core.Live}, nil
}

func benchBudget(b *testing.B) *Resource {
	return must.Get(New(&leaf{}, Config{Limit: 1 << 30}))(b)
}

func hold(b *testing.B, r core.Resource, req core.Request) {
	must.Get(r.Allocate(context.Background(), req))(b)
}

func pairs(b *testing.B, r core.Resource, req core.Request) {
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		block, err := r.Allocate(ctx, req)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := r.Deallocate(ctx, block.ID); err != nil {
			b.Fatal(err)
		}
	}
}

func parallelPairs(b *testing.B, r core.Resource) {
	var streams atomic.Uint64
	ctx := context.Background()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		req := core.Request{Bytes: 4096, Stream: core.StreamID(streams.Add(1)), Tag: "sort.keys"}
		for pb.Next() {
			block, err := r.Allocate(ctx, req)
			if err != nil {
				b.Error(err)
				return
			}
			if _, err := r.Deallocate(ctx, block.ID); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
