package budget

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
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
		claim, err := r.Reserve(context.Background(), 1<<20, "sort.keys")
		if err != nil {
			b.Fatal(err)
		}
		hold(b, r, core.Request{Bytes: 256, Stream: 1, Tag: "sort.keys", Claim: claim.ID})
		pairs(b, r, core.Request{Bytes: 4096, Stream: 1, Tag: "sort.keys", Claim: claim.ID})
	})
}

// BenchmarkPairParallel is the same from all processors, each on its own
// stream.
func BenchmarkPairParallel(b *testing.B) {
	b.Run("bare", func(b *testing.B) { parallelPairs(b, &leaf{}) })
	b.Run("budget", func(b *testing.B) { parallelPairs(b, benchBudget(b)) })
}

func benchBudget(b *testing.B) *Resource {
	r, err := New(&leaf{}, Config{Limit: 1 << 30})
	if err != nil {
		b.Fatal(err)
	}
	return r
}

func hold(b *testing.B, r core.Resource, req core.Request) {
	if _, err := r.Allocate(context.Background(), req); err != nil {
		b.Fatal(err)
	}
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
