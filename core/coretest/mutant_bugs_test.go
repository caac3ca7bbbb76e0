package coretest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
)

// mutate opens a fake with the bug.
func mutate(bug func(*mutant)) func(*testing.T) Subject {
	return func(*testing.T) Subject {
		m := newMutant()
		bug(m)
		return m.subject()
	}
}

func fencing(bug toyBug) func(*testing.T) Subject {
	return func(t *testing.T) Subject { return newToy(t, bug).subject() }
}

func claimBug(bug string) func(*testing.T) Subject {
	return func(*testing.T) Subject { return newClaims(bug) }
}

func boast(claims core.Features, name string) func(*testing.T) Subject {
	return func(*testing.T) Subject {
		s := newMutant().subject()
		b := boaster{NewFaults(s.Resource), claims, name}
		s.Resource, s.Features = b, b.Features()
		return s
	}
}

func newestBlock(m *mutant, id core.BlockID) core.BlockID {
	m.Inspect().Blocks(func(info core.BlockInfo) bool {
		id = info.Block.ID
		return true
	})
	return id
}

func exactPointer(m *mutant, id core.BlockID) core.BlockID {
	m.Inspect().Blocks(func(info core.BlockInfo) bool {
		if info.Block.ID.Generation == id.Generation {
			id.Ptr = info.Block.ID.Ptr
		}
		return true
	})
	return id
}

func onlyFirstByte(m *mutant, id core.BlockID) core.BlockID {
	if exactPointer(m, id).Ptr != id.Ptr {
		id.Ptr = 0
	}
	return id
}

// forgive turns the refusal of a free in the given state into a success.
func forgive(state core.BlockState) func(core.BlockID, core.Block, error) (core.Block, error) {
	return func(id core.BlockID, b core.Block, err error) (core.Block, error) {
		var uaf *core.UseAfterFreeError
		if errors.As(err, &uaf) && uaf.State == state {
			return core.Block{ID: id, State: core.Retired}, nil
		}
		return b, err
	}
}

func sameStream(*testing.T) Subject {
	m := newMutant()
	s := m.subject()
	s.Streams = func(testing.TB) core.StreamID { return 7 }
	return s
}

func failAfterFree(*testing.T) Subject {
	fake := NewFake(0)
	faults := NewFaults(fake)
	return Subject{Resource: faults, Features: fake.Features(), Streams: fake.Streams,
		FailNextFree: func() {
			faults.Inject(Fault{Method: "Deallocate", Call: 1, Err: errors.New("lost answer"), After: true})
		}}
}

// freeAtOnce releases blocks that are in use.
func freeAtOnce(*testing.T) Subject {
	return mutate(func(m *mutant) {
		m.ReleaseAtFree()
		onUses(func(r *core.UseRequest) { r.Uses = nil })(m)
	})(nil)
}

// oneEndEndsAll closes every intent with the first that ends.
func oneEndEndsAll(*testing.T) Subject {
	return mutate(func(m *mutant) {
		m.ReleaseAtFree()
		var open []core.Ticket
		m.prepare = func(ctx context.Context, r core.UseRequest) (core.Ticket, error) {
			t, err := m.Fake.PrepareUse(ctx, r)
			open = append(open, t)
			return t, err
		}
		m.finish = func(ctx context.Context, _ core.Ticket) error {
			for _, t := range open {
				_ = m.Fake.FinishUse(ctx, t)
			}
			return nil
		}
	})(nil)
}

func retiredTakesUses(*testing.T) Subject {
	return mutate(func(m *mutant) {
		m.prepare = func(ctx context.Context, r core.UseRequest) (core.Ticket, error) {
			if m.State(r.Uses[0].Block) == core.Retired {
				r.Uses = nil
			}
			return m.Fake.PrepareUse(ctx, r)
		}
	})(nil)
}

// spentTwice calls every end of a ticket a success.
func spentTwice(*testing.T) Subject {
	return mutate(func(m *mutant) {
		m.finish = func(ctx context.Context, t core.Ticket) error { _ = m.Fake.FinishUse(ctx, t); return nil }
		m.abort = func(ctx context.Context, t core.Ticket) error { _ = m.Fake.AbortUse(ctx, t); return nil }
	})(nil)
}

// halfPrepared opens the first block's intent although a later one is refused.
func halfPrepared(*testing.T) Subject {
	return mutate(func(m *mutant) {
		m.prepare = func(ctx context.Context, r core.UseRequest) (core.Ticket, error) {
			t, err := m.Fake.PrepareUse(ctx, r)
			if err != nil && len(r.Uses) > 1 {
				r.Uses = r.Uses[:1]
				_, _ = m.Fake.PrepareUse(ctx, r)
			}
			return t, err
		}
	})(nil)
}

func upgrade(uses []core.Use) {
	for i := range uses {
		uses[i].Access = core.ReadWrite
	}
}

func namelessConflict(*testing.T) Subject {
	return mutate(func(m *mutant) {
		m.prepare = func(ctx context.Context, r core.UseRequest) (core.Ticket, error) {
			t, err := m.Fake.PrepareUse(ctx, r)
			var misuse *core.StreamMisuseError
			if errors.As(err, &misuse) {
				misuse.Holder = nil
			}
			return t, err
		}
	})(nil)
}

// everyIntentItsStream makes intents on one stream look like many streams.
func everyIntentItsStream(*testing.T) Subject {
	var last atomic.Uint64
	s := mutate(onUses(func(r *core.UseRequest) { r.Stream = core.StreamID(last.Add(1)) }))(nil)
	s.Streams = func(testing.TB) core.StreamID { return 7 }
	return s
}

func waitForever(*testing.T) Subject {
	return mutate(func(m *mutant) {
		m.prepare = func(_ context.Context, r core.UseRequest) (core.Ticket, error) {
			return m.Fake.PrepareUse(context.Background(), r)
		}
	})(nil)
}

// waitsThenOpens waits for the holder without looking at the block again.
func waitsThenOpens(*testing.T) Subject {
	return mutate(func(m *mutant) {
		m.prepare = func(ctx context.Context, r core.UseRequest) (core.Ticket, error) {
			t, err := m.Fake.PrepareUse(ctx, r)
			if errors.Is(err, core.ErrUseAfterFree) && r.Wait {
				r.Uses = nil
				return m.Fake.PrepareUse(ctx, r)
			}
			return t, err
		}
	})(nil)
}

func driftingStats(m *mutant) {
	m.stats = func() core.Stats {
		s := m.Fake.Stats()
		s.Live.Requested += s.Deallocations
		return s
	}
}

func doubleFreeCounters(m *mutant) {
	m.freedOn = func(id core.StreamID) core.FreeCounters {
		o := m.Fake.FreedOn(id)
		return core.FreeCounters{Queued: 2 * o.Queued, Completed: 2 * o.Completed}
	}
}

func TestClaimsConform(t *testing.T) {
	Run(t, func(*testing.T) Subject { return newClaims("") })
}

// deaf is a layer that need not forward what a layer must.
type deaf struct {
	core.Resource
	inspector core.Inspector
	withhold  func(core.BlockID, core.BlockState)
	check     func(context.Context) error
}

func (d *deaf) String() string                               { return "deaf(" + d.Resource.String() + ")" }
func (d *deaf) Unwrap() core.Resource                        { return d.Resource }
func (d *deaf) Inspect() core.Inspector                      { return d.inspector }
func (d *deaf) Withhold(id core.BlockID, as core.BlockState) { d.withhold(id, as) }
func (d *deaf) CheckLive(ctx context.Context) error          { return d.check(ctx) }

func layered(change func(*deaf)) func(*testing.T) Subject {
	return func(*testing.T) Subject {
		m := newMutant()
		m.Isolate(mib)
		m.features |= core.Isolation
		d := &deaf{m, m.Inspect(), m.Withhold, m.CheckLive}
		change(d)
		s := m.subject()
		s.Resource = d
		return s
	}
}
