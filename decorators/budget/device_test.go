package budget

import (
	"context"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/refuse"
)

// device is a backend whose streams the test drives: frees queue up in order
// and are passed one by one, some are held back as if an intent were open on
// their block, and every block has the same address.
type device struct {
	core.Unsupported
	mu           sync.Mutex
	live         map[core.Generation]core.Block
	queues       map[core.StreamID][]core.Block
	held         map[core.StreamID][]core.Block
	freeCounters map[core.StreamID]core.FreeCounters
	listeners    []core.Listener
	// hold makes frees wait for letGo; fail fails the next calls of a method.
	// atOnce makes the device pass a free before Deallocate returns.
	hold   bool
	atOnce bool
	// ordered says that a free is released when it is queued.
	ordered bool
	fail    map[string]error
	reaps   int
	// onReap is what a reap finds to do.
	onReap func()
}

var _ core.Resource = (*device)(nil)

func newDevice() *device {
	return &device{live: map[core.Generation]core.Block{}, queues: map[core.StreamID][]core.Block{},
		held: map[core.StreamID][]core.Block{}, freeCounters: map[core.StreamID]core.FreeCounters{}, fail: map[string]error{}}
}

// failNext fails the next call of op with err.
func (d *device) failNext(op string, err error) { d.fail[op] = err }

func (d *device) take(op string) error {
	err := d.fail[op]
	delete(d.fail, op)
	return err
}

func (d *device) Allocate(_ context.Context, r core.Request) (core.Block, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.take("Allocate"); err != nil {
		return core.Block{}, err
	}
	id := core.BlockID{Ptr: 0x1000, Generation: core.NextGeneration(), AllocStream: r.Stream}
	b := core.Block{ID: id, Requested: r.Requested, Bytes: r.Bytes, Tag: r.Tag, State: core.Live}
	d.live[id.Generation] = b
	return b, nil
}

func (d *device) Deallocate(_ context.Context, id core.BlockID) (core.Block, error) {
	b, err := d.retire(id)
	if d.atOnce {
		d.pass(id.AllocStream, 1)
	}
	return b, err
}

func (d *device) retire(id core.BlockID) (core.Block, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.take("Deallocate"); err != nil {
		return core.Block{}, err
	}
	b, ok := d.live[id.Generation]
	if !ok {
		return core.Block{}, &core.UseAfterFreeError{Op: "Deallocate", Generation: id.Generation, Block: id, State: core.Freed}
	}
	delete(d.live, id.Generation)
	b.State = core.Retired
	if d.hold {
		d.held[id.AllocStream] = append(d.held[id.AllocStream], b)
	} else {
		d.enqueue(b)
	}
	return b, nil
}

func (d *device) enqueue(b core.Block) {
	s := b.ID.AllocStream
	d.queues[s] = append(d.queues[s], b)
	o := d.freeCounters[s]
	o.Queued += b.Bytes
	d.freeCounters[s] = o
}

// letGo queues the frees that were held back on stream.
func (d *device) letGo(stream core.StreamID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range d.held[stream] {
		d.enqueue(b)
	}
	delete(d.held, stream)
}

// pass lets the device pass the first n frees of stream.
func (d *device) pass(stream core.StreamID, n int) {
	d.mu.Lock()
	n = min(n, len(d.queues[stream]))
	passed := d.queues[stream][:n]
	d.queues[stream] = d.queues[stream][n:]
	o := d.freeCounters[stream]
	for _, b := range passed {
		o.Completed += b.Bytes
	}
	d.freeCounters[stream] = o
	d.mu.Unlock()
	for _, b := range passed {
		b.State = core.Freed
		for _, l := range d.listeners {
			l.Released(b)
		}
	}
}

func (d *device) ReapPending(context.Context) error {
	d.mu.Lock()
	d.reaps++
	err, reap := d.take("ReapPending"), d.onReap
	d.mu.Unlock()
	if reap != nil {
		reap()
	}
	return err
}

func (d *device) FreedOn(id core.StreamID) core.FreeCounters {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.freeCounters[id]
}

func (d *device) Subscribe(l core.Listener) { d.listeners = append(d.listeners, l) }

func (d *device) PrepareUse(context.Context, core.UseRequest) (core.Ticket, error) {
	return core.Ticket{}, refuse.Unsupported("PrepareUse", "device", "none")
}
func (d *device) FinishUse(context.Context, core.Ticket) error {
	return refuse.Unsupported("FinishUse", "device", "none")
}
func (d *device) AbortUse(context.Context, core.Ticket) error {
	return refuse.Unsupported("AbortUse", "device", "none")
}
func (d *device) RecordUse(context.Context, core.BlockID, core.StreamID) error {
	return refuse.Unsupported("RecordUse", "device", "none")
}
func (d *device) Reserve(context.Context, uint64, core.Tag) (core.Claim, error) {
	return core.Claim{}, refuse.Unsupported("Reserve", "device", "none")
}
func (d *device) ReleaseClaim(context.Context, core.ClaimID) error {
	return refuse.Unsupported("ReleaseClaim", "device", "none")
}
func (d *device) Drain(context.Context) error        { return nil }
func (d *device) State(core.BlockID) core.BlockState { return core.Freed }
func (d *device) Stats() core.Stats                  { return core.Stats{} }
func (d *device) Unwrap() core.Resource              { return nil }
func (d *device) Ordinal() int                       { return 0 }
func (d *device) String() string                     { return "device" }

func (d *device) Features() core.Features {
	if d.ordered {
		return core.StreamOrdered | core.OrderedRelease
	}
	return core.StreamOrdered
}
