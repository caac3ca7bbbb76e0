package debugguard_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// null is a backend that does next to nothing, so that what is measured is
// the guard.
type null struct {
	core.Unsupported
	listener core.Listener
	ptr      atomic.Uint64
}

var _ core.Resource = (*null)(nil)

func (n *null) Allocate(_ context.Context, r core.Request) (core.Block, error) {
	id := core.BlockID{Ptr: n.ptr.Add(1024), Generation: core.NextGeneration(), AllocStream: r.Stream}
	return core.Block{ID: id, Requested: r.Bytes, Bytes: r.Bytes, Align: core.DefaultAlign, Tag: r.Tag.OrUntagged(), State: core.Live}, nil
}

func (n *null) Deallocate(_ context.Context, id core.BlockID) (core.Block, error) {
	b := core.Block{ID: id, State: core.Freed}
	if n.listener != nil {
		n.listener.Released(b)
	}
	return b, nil
}

func (n *null) PrepareUse(_ context.Context, r core.UseRequest) (core.Ticket, error) {
	in, err := core.OpenIntent(n, &r)
	if err != nil {
		return core.Ticket{}, err
	}
	return in.Ticket(n), nil
}

func (n *null) FinishUse(_ context.Context, t core.Ticket) error {
	in, err := t.End(n, "FinishUse")
	if err == nil {
		in.Recycle()
	}
	return err
}

func (n *null) ReapPending(context.Context) error       { return nil }
func (n *null) Drain(context.Context) error             { return nil }
func (n *null) State(core.BlockID) core.BlockState      { return core.Freed }
func (n *null) Stats() core.Stats                       { return core.Stats{} }
func (n *null) FreedOn(core.StreamID) core.FreeCounters { return core.FreeCounters{} }
func (n *null) Subscribe(l core.Listener)               { n.listener = l }
func (n *null) Unwrap() core.Resource                   { return nil }
func (n *null) Ordinal() int                            { return 0 }
func (n *null) Features() core.Features                 { return core.UseTracking | core.StreamOrdered }
func (n *null) String() string                          { return "null" }

// layers are the stacks that are compared, each over a fresh null backend.
func layers(tb testing.TB) []struct {
	name string
	r    core.Resource
} {
	guarded := func(m debugguard.Mode) core.Resource {
		return must.Get(debugguard.New(&null{}, debugguard.Config{Mode: m, Advanced: debugguard.Advanced{Tombstones: 1024, StackBytes: 1 << 50}}))(tb)
	}
	return []struct {
		name string
		r    core.Resource
	}{{"bare", &null{}}, {"off", guarded(debugguard.Off)}, {"ledger", guarded(debugguard.Ledger)}}
}

func pair(tb testing.TB, r core.Resource) {
	block, err := r.Allocate(ctx, core.Request{Bytes: 512, Stream: 1, Tag: "bench"})
	must.Do(tb, err)
	must.Get(r.Deallocate(ctx, block.ID))(tb)
}

func launch(tb testing.TB, r core.Resource, uses []core.Use) {
	t, err := r.PrepareUse(ctx, core.UseRequest{Stream: 1, Launch: "bench", Uses: uses})
	must.Do(tb, err)
	must.Do(tb, r.FinishUse(ctx, t))
}

// threeUses are blocks of r for a launch.
func threeUses(tb testing.TB, r core.Resource) []core.Use {
	var uses []core.Use
	for range 3 {
		block := must.Get(r.Allocate(ctx, core.Request{Bytes: 512}))(tb)
		uses = append(uses, core.Use{Block: block.ID, Access: core.ReadWrite})
	}
	return uses
}

// BenchmarkPair is an allocation and its free.
func BenchmarkPair(b *testing.B) {
	for _, l := range layers(b) {
		b.Run(l.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				pair(b, l.r)
			}
		})
	}
}

// BenchmarkPairParallel is BenchmarkPair on all processors.
func BenchmarkPairParallel(b *testing.B) {
	for _, l := range layers(b) {
		b.Run(l.name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					pair(b, l.r)
				}
			})
		})
	}
}

// BenchmarkLaunch is the prepare and finish of a launch that uses three
// blocks.
func BenchmarkLaunch(b *testing.B) {
	for _, l := range layers(b) {
		b.Run(l.name, func(b *testing.B) {
			uses := threeUses(b, l.r)
			b.ReportAllocs()
			for b.Loop() {
				launch(b, l.r, uses)
			}
		})
	}
}
