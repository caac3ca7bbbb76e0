package cuda_test

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
)

// TestRandomProgramsAreOrdered runs random programs on seeded schedules. The
// kernels really do what was declared; the oracle must be silent, the bytes
// must be those of running the program in order, and the books must be exact.
func TestRandomProgramsAreOrdered(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		m := newMachine(t, r)
		defer m.abandon()
		r.Repeat(map[string]func(*rapid.T){
			"alloc": m.alloc, "launch": m.launch, "prepare": m.prepareOnly, "enqueue": m.enqueueOpen,
			"finish": m.finish, "abort": m.abort, "free": m.free, "record": m.record,
			"lease": m.lease, "adopt": m.adopt, "release": m.release, "reap": m.reap, "sync": m.sync, "": m.check,
		})
		m.end()
	})
}

// machine is a stack and the model of it.
type machine struct {
	t      *testing.T
	r      *rapid.T
	stack  *teststack.Stack
	kernel *cuda.Kernel
	leases []*cuda.Lease
	// adopted are the caller's streams, by lease.
	adopted map[core.StreamID]driver.Stream
	blocks  []*modelBlock
	open    []*openLaunch
	seed    uint64
	want    core.Stats
	closed  bool
}

type modelBlock struct {
	core.Block
	value   uint64
	written bool
	freed   bool
	intents int
}

// openLaunch is a prepared launch that was not ended.
type openLaunch struct {
	ticket   core.Ticket
	on       *cuda.Lease
	uses     []modelUse
	enqueued bool
}

type modelUse struct {
	block  *modelBlock
	access core.Access
}

func newMachine(t *testing.T, r *rapid.T) *machine {
	stack, err := teststack.New(teststack.Config{
		Sim:     sim.Config{Bytes: 64 << 20, Schedule: sim.Seeded(rapid.Uint64().Draw(r, "schedule"))},
		Streams: 5, Async: cuda.AsyncConfig{ReapInterval: -1}, DeviceOrder: rapid.Bool().Draw(r, "device order"),
	})
	must(t, err)
	m := &machine{t: t, r: r, stack: stack, kernel: loadMix(t, stack.Sim), adopted: map[core.StreamID]driver.Stream{}}
	for range 2 {
		m.lease(r)
	}
	return m
}

// abandon closes the device of a program that failed.
func (m *machine) abandon() {
	if !m.closed {
		_ = m.stack.Close()
	}
}

func (m *machine) no(err error, what string) {
	if err != nil {
		m.r.Fatalf("%s: %v", what, err)
	}
}

func (m *machine) on(r *rapid.T) *cuda.Lease {
	return pickOne(r, "stream", m.leases)
}

// pickOne draws an index: what it names would fill the log.
func pickOne[T any](r *rapid.T, what string, from []T) T {
	return from[rapid.IntRange(0, len(from)-1).Draw(r, what)]
}

func (m *machine) live() []*modelBlock {
	return slices.DeleteFunc(slices.Clone(m.blocks), func(b *modelBlock) bool { return b.freed })
}

func (m *machine) alloc(r *rapid.T) {
	on, bytes := m.on(r), 8*rapid.Uint64Range(1, 64).Draw(r, "words")
	b, err := m.stack.Runtime.Allocate(ctx, core.Request{Bytes: bytes, Stream: on.ID(), Tag: "machine"})
	m.no(err, "alloc")
	m.blocks = append(m.blocks, &modelBlock{Block: b})
	m.want.Allocations++
	m.want.Live = m.want.Live.Add(core.Amount{Bytes: bytes, Requested: bytes, Blocks: 1})
	m.want.PeakRequested = max(m.want.PeakRequested, m.want.Live.Requested)
}

func (m *machine) free(r *rapid.T) {
	live := m.live()
	if len(live) == 0 {
		r.Skip("no block")
	}
	b := pickOne(r, "block", live)
	_, err := m.stack.Runtime.Deallocate(ctx, b.ID)
	m.no(err, "free")
	b.freed = true
	m.want.Deallocations++
	m.want.Live = m.want.Live.Sub(core.Amount{Bytes: b.Bytes, Requested: b.Requested, Blocks: 1})
	if _, err := m.stack.Runtime.Deallocate(ctx, b.ID); !errors.Is(err, core.ErrUseAfterFree) {
		r.Fatalf("second free: %v", err)
	}
}

// draw picks blocks and what to do with them. What was never written is only
// written: there is nothing that a read should find.
func (m *machine) draw(r *rapid.T) []modelUse {
	live := m.live()
	if len(live) == 0 {
		r.Skip("no block")
	}
	var uses []modelUse
	for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(0, len(live)-1), 1, min(4, len(live)), rapid.ID[int]).Draw(r, "blocks") {
		b := live[i]
		access := rapid.SampledFrom([]core.Access{core.Read, core.Read, core.Write, core.ReadWrite}).Draw(r, "access")
		if !b.written {
			access = core.Write
		}
		uses = append(uses, modelUse{b, access})
	}
	return uses
}

// prepare announces a launch. It must be refused exactly if another stream's
// open launch conflicts.
func (m *machine) prepare(r *rapid.T) *openLaunch {
	on, uses := m.on(r), m.draw(r)
	ticket, err := m.stack.Runtime.PrepareUse(ctx, core.UseRequest{Stream: on.ID(), Launch: "machine", Uses: declared(plain(uses))})
	if m.conflicts(on, uses) {
		if !errors.Is(err, core.ErrStreamMisuse) {
			r.Fatalf("a conflicting prepare was answered with %v", err)
		}
		return nil
	}
	m.no(err, "prepare")
	l := &openLaunch{ticket: ticket, on: on, uses: uses}
	m.open = append(m.open, l)
	for _, u := range uses {
		u.block.intents++
	}
	return l
}

func (m *machine) conflicts(on *cuda.Lease, uses []modelUse) bool {
	for _, l := range m.open {
		for _, held := range l.uses {
			for _, u := range uses {
				if l.on.Handle() != on.Handle() && held.block == u.block && (held.access.Writes() || u.access.Writes()) {
					return true
				}
			}
		}
	}
	return false
}

func plain(uses []modelUse) []use {
	var all []use
	for _, u := range uses {
		all = append(all, use{u.block.Block, u.access})
	}
	return all
}

// enqueue runs the kernel on the device and on the model.
func (m *machine) enqueue(l *openLaunch) {
	m.seed++
	m.no(m.kernel.Enqueue(l.on.Handle(), grid, mixArgs(m.seed, plain(l.uses))...), "enqueue")
	l.enqueued = true
	h := m.seed
	for _, u := range l.uses {
		if u.access.Reads() {
			h = mix(h, slices.Repeat([]uint64{u.block.value}, int(u.block.Bytes/8)))
		}
	}
	for _, u := range l.uses {
		if u.access.Writes() {
			u.block.value, u.block.written = h, true
		}
	}
}

func (m *machine) close(l *openLaunch, end func() error, what string) {
	m.no(end(), what)
	m.open = slices.DeleteFunc(m.open, func(o *openLaunch) bool { return o == l })
	for _, u := range l.uses {
		u.block.intents--
	}
}

func (m *machine) finishOne(l *openLaunch) {
	m.close(l, func() error { return m.stack.Runtime.FinishUse(ctx, l.ticket) }, "finish")
	m.want.Launches++
}
