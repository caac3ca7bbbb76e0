package budget

import (
	"context"

	"github.com/fencepost-gpu/fencepost/core"
)

// leaf is the least a backend can be: it names blocks, keeps nothing, and
// releases at the free, so that what is measured over it is the budget.
type leaf struct {
	core.Unsupported
	listeners []core.Listener
	delay     func(id core.BlockID)
	fail      error
}

var _ core.Resource = (*leaf)(nil)

func (f *leaf) Allocate(_ context.Context, r core.Request) (core.Block, error) {
	if f.fail != nil {
		return core.Block{}, f.fail
	}
	id := core.BlockID{Ptr: 0x1000, Generation: core.NextGeneration(), AllocStream: r.Stream}
	return core.Block{ID: id, Requested: r.Requested, Bytes: r.Bytes, Align: r.Align, Tag: r.Tag, State: core.Live}, nil
}

func (f *leaf) Deallocate(_ context.Context, id core.BlockID) (core.Block, error) {
	b := core.Block{ID: id, State: core.Freed}
	for _, l := range f.listeners {
		l.Released(b)
	}
	if f.delay != nil {
		f.delay(id)
	}
	return b, nil
}

func (f *leaf) PrepareUse(context.Context, core.UseRequest) (core.Ticket, error) {
	return core.Ticket{}, f.fail
}
func (f *leaf) FinishUse(context.Context, core.Ticket) error { return f.fail }
func (f *leaf) AbortUse(context.Context, core.Ticket) error  { return f.fail }
func (f *leaf) RecordUse(context.Context, core.BlockID, core.StreamID) error {
	return f.fail
}
func (f *leaf) Reserve(context.Context, uint64, core.Tag) (core.Claim, error) {
	return core.Claim{}, f.fail
}
func (f *leaf) ReleaseClaim(context.Context, core.ClaimID) error { return f.fail }
func (f *leaf) ReapPending(context.Context) error                { return f.fail }
func (f *leaf) Drain(context.Context) error                      { return f.fail }
func (f *leaf) State(core.BlockID) core.BlockState               { return core.Freed }
func (f *leaf) Stats() core.Stats                                { return core.Stats{} }
func (f *leaf) FreedOn(core.StreamID) core.FreeCounters          { return core.FreeCounters{} }
func (f *leaf) Subscribe(l core.Listener)                        { f.listeners = append(f.listeners, l) }
func (f *leaf) Unwrap() core.Resource                            { return nil }
func (f *leaf) Ordinal() int                                     { return 0 }
func (f *leaf) Features() core.Features                          { return core.StreamOrdered }
func (f *leaf) String() string                                   { return "leaf" }
