package debugguard_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// impatient waits for no device.
func impatient(c *debugguard.Config) { c.Advanced.Patience = -1 }

// events collects events.
type events struct {
	mu  sync.Mutex
	all []oplog.Event
}

func (e *events) Emit(_ context.Context, ev oplog.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, ev)
}

func TestQuarantineGivesWayToARefusal(t *testing.T) {
	for name, refusal := range map[string]error{"budget": &core.OutOfBudgetError{Requested: 1}, "device": errMemory} {
		t.Run(name, func(t *testing.T) {
			told := &events{}
			b := newBench(t, debugguard.Hunt, func(c *debugguard.Config) { c.Advanced.Events = told })
			var blocks []core.Block
			for range 8 {
				blocks = append(blocks, b.alloc(512))
			}
			for _, block := range blocks {
				b.free(block)
			}
			b.fake.FailNext("Allocate", refusal, refusal) // the second comes after a reap
			span := core.SpanRef{TraceID: [16]byte{1}, SpanID: [8]byte{2}}
			must.Get(b.guard.Allocate(core.WithSpan(ctx, span), core.Request{Bytes: 512, Tag: "test"}))(t)
			g := b.guard.GuardStats()
			if g.Relieved != 1 || g.Evicted != 2 {
				t.Errorf("relieved %d, evicted %d", g.Relieved, g.Evicted)
			}
			if first, third := b.guard.State(blocks[0].ID), b.guard.State(blocks[2].ID); first != core.Retired || third != core.Quarantined {
				t.Errorf("not the oldest first: %v, %v", first, third)
			}
			if len(told.all) != 1 {
				t.Fatalf("events %v", told.all)
			}
			e := told.all[0]
			if e.Op != oplog.OpRefusal || !e.Relieved || !errors.Is(e.Err, refusal) || e.Requested != 512 || e.Tag != "test" || e.Layer != "debugguard" || e.Span != span {
				t.Errorf("event %+v", e)
			}
			b.want()
		})
	}
}

func TestRefusalThatNothingCuresIsTold(t *testing.T) {
	b := newBench(t, debugguard.Hunt, impatient)
	for range 8 {
		b.free(b.alloc(512))
	}
	refusal := &core.OutOfBudgetError{Requested: 512}
	many := make([]error, 20)
	for i := range many {
		many[i] = refusal
	}
	b.fake.FailNext("Allocate", many...)
	if _, err := b.guard.Allocate(ctx, core.Request{Bytes: 512}); !errors.Is(err, core.ErrOutOfBudget) {
		t.Fatalf("error %v", err)
	}
	if g := b.guard.GuardStats(); g.Quarantine.Blocks != 0 || g.Relieved != 0 {
		t.Errorf("refused with %+v", g)
	}
}

// What was freed may be the reservation's, unless it never had as much.
func TestQuarantineGivesWayToAReservationThatItMayHelp(t *testing.T) {
	for name, c := range map[string]struct {
		reserved uint64
		refusals int
		helps    bool
	}{"it would fit an empty one": {512, 2, true}, "it would fit none of that size": {511, 20, false}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, debugguard.Hunt)
			b.free(b.alloc(512))
			short := &core.OutOfBudgetError{Requested: 512, Limit: 1 << 20, Claim: 1, Reserved: c.reserved}
			b.fake.FailNext("Allocate", slices.Repeat([]error{short}, c.refusals)...)
			_, err := b.guard.Allocate(ctx, core.Request{Bytes: 512})
			if g := b.guard.GuardStats(); (err == nil) != c.helps || (g.Quarantine.Blocks == 0) != c.helps {
				t.Errorf("%v, %d blocks in quarantine", err, g.Quarantine.Blocks)
			}
		})
	}
}

func TestRedZonesGiveWayToo(t *testing.T) {
	b := newBench(t, debugguard.Hunt)
	b.fake.FailNext("Allocate", errMemory, errMemory) // it looks for memory that is pending, and tries once more
	block := b.alloc(512)
	if g := b.guard.GuardStats(); g.Unguarded != 1 || g.Guarded != 0 || g.Known != 1 {
		t.Errorf("guard %+v", g)
	}
	if s := b.free(block).State; s != core.Retired {
		t.Errorf("the block without red zones is %v", s)
	}
	b.empty()
	b.want()
}

func TestCuredRefusalsAreNotCounted(t *testing.T) {
	b := newBench(t, debugguard.Off)
	books := &refusing{Fake: b.fake}
	b.guard = b.over(books, debugguard.Hunt, impatient)
	b.free(b.alloc(512))
	books.refusals = 1
	b.alloc(512)
	if s := b.guard.Stats(); s.Refusals != 0 || books.counted != 1 {
		t.Errorf("callers were told of %d refusals, the upstream counted %d", s.Refusals, books.counted)
	}
	books.refusals = 100
	if _, err := b.guard.Allocate(ctx, core.Request{Bytes: 1}); err == nil {
		t.Fatal("no refusal")
	}
	if s := b.guard.Stats(); s.Refusals != 1 {
		t.Errorf("callers were told of %d refusals, want 1", s.Refusals)
	}
}
