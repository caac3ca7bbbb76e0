package debugguard_test

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/names"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// declarations drives a ledger at random over an upstream that gives addresses
// out again, and keeps a model of what it must find: lists without any index.
type declarations struct {
	*bench
	all      []*modelled // by generation
	launches int
	refuses  bool
	// unseen is the newest generation when the guard was last turned on: what
	// became of older blocks' memory it does not know.
	unseen core.Generation
}

// modelled is a block as the model knows it.
type modelled struct {
	core.Block
	live, written, accused bool
	// unobserved: the guard was off when it was allocated.
	unobserved bool
}

func (m *declarations) pick(rt *rapid.T, live bool) *modelled {
	var of []*modelled
	for _, b := range m.all {
		if b.live == live {
			of = append(of, b)
		}
	}
	return of[pick(rt, of)]
}

// owner is the live block at an address that the ledger knows, and the newest
// freed one.
func (m *declarations) owner(ptr uint64) (live, freed *modelled) {
	for _, b := range m.all {
		switch {
		case b.unobserved || b.ID.Ptr != ptr:
		case b.live:
			live = b
		default:
			freed = b
		}
	}
	return live, freed
}

func (m *declarations) name() string {
	m.launches++
	return fmt.Sprint("launch ", m.launches)
}

// expect demands the finding, or none if kind is empty.
func (m *declarations) expect(rt *rapid.T, what string, kind core.FindingKind, victim *modelled) {
	found := m.sink.taken()
	if kind == "" {
		if len(found) != 0 {
			rt.Fatalf("%s: found %v", what, found)
		}
		return
	}
	if len(found) != 1 || found[0].Kind != kind || found[0].Victim.ID.Generation != victim.ID.Generation {
		rt.Fatalf("%s: found %v, want %s of %v", what, found, kind, victim.ID)
	}
}

func (m *declarations) allocate(rt *rapid.T) {
	block := m.allocOn(core.StreamID(rapid.IntRange(0, 2).Draw(rt, "stream")), 256)
	m.all = append(m.all, &modelled{Block: block, live: true, unobserved: m.guard.Mode() == debugguard.Off})
}

func (m *declarations) write(rt *rapid.T) {
	b := m.pick(rt, true)
	access := rapid.SampledFrom([]core.Access{core.Write, core.ReadWrite}).Draw(rt, "access")
	t := must.Get(m.guard.PrepareUse(ctx, core.UseRequest{Stream: 1, Launch: m.name(), Uses: using(access, b.Block)}))(rt)
	if rapid.Bool().Draw(rt, "abort") {
		must.Do(rt, m.guard.AbortUse(ctx, t))
	} else {
		m.finish(t)
		b.written = true
	}
	m.expect(rt, "a write", "", nil)
}

func (m *declarations) read(rt *rapid.T) {
	b := m.pick(rt, true)
	err := m.reads(m.name(), b.Block)
	wrong := !b.written && !b.unobserved && m.guard.Mode() != debugguard.Off
	if refused := err != nil; refused != (wrong && m.refuses) {
		rt.Fatalf("a read, wrong %v: %v", wrong, err)
	}
	if !wrong || b.accused && !m.refuses {
		m.expect(rt, "a read", "", nil)
		return
	}
	b.accused = true
	m.expect(rt, "a read", names.FindingUninitializedRead, b)
}

func (m *declarations) point(rt *rapid.T) {
	declared, at := m.pick(rt, true), m.pick(rt, rapid.Bool().Draw(rt, "at a live one"))
	live, freed := m.owner(at.ID.Ptr)
	kind, victim := core.FindingKind(""), live
	switch {
	case m.guard.Mode() == debugguard.Off || at.ID.Ptr == declared.ID.Ptr || at.ID.Ptr == declared.ID.Ptr+256:
	case live != nil:
		kind = names.FindingUndeclaredAccess
	case freed != nil && freed.ID.Generation > m.unseen:
		kind, victim = names.FindingStaleHandle, freed
	}
	req := core.UseRequest{Stream: 1, Launch: m.name(), Uses: using(core.Write, declared.Block), Pointers: []uint64{at.ID.Ptr}}
	if declared.unobserved {
		rt.Skip("a pointer into a block that the ledger does not know may be its")
	}
	err := m.try(req)
	if refused := err != nil; refused != (kind != "" && m.refuses) {
		rt.Fatalf("pointer %#x: %v", at.ID.Ptr, err)
	}
	if err == nil {
		declared.written = true
	}
	m.expect(rt, "a pointer", kind, victim)
}

func (m *declarations) freeOne(rt *rapid.T) {
	b := m.pick(rt, true)
	m.free(b.Block)
	b.live = false
	m.expect(rt, "a free", "", nil)
}

func (m *declarations) late(rt *rapid.T) {
	b := m.pick(rt, false)
	kind := core.FindingKind(names.FindingStaleHandle)
	for _, other := range m.all {
		if !other.unobserved && other.ID.Ptr == b.ID.Ptr && other.ID.Generation > b.ID.Generation {
			kind = names.FindingReuseRace
		}
	}
	if b.unobserved || m.guard.Mode() == debugguard.Off {
		kind = ""
	}
	if err := m.reads(m.name(), b.Block); !errors.Is(err, core.ErrUseAfterFree) {
		rt.Fatalf("a late use: %v", err)
	}
	m.expect(rt, "a late use", kind, b)
}

func (m *declarations) freeAgain(rt *rapid.T) {
	b := m.pick(rt, false)
	if b.unobserved {
		rt.Skip("what it is called depends on when it was")
	}
	if _, err := m.guard.Deallocate(ctx, b.ID); !errors.Is(err, core.ErrUseAfterFree) {
		rt.Fatalf("a second free: %v", err)
	}
	if m.guard.Mode() == debugguard.Off {
		m.expect(rt, "a second free", "", nil)
		return
	}
	m.expect(rt, "a second free", names.FindingDoubleFree, b)
}

func TestTheLedgerSaysWhatAModelSays(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &declarations{bench: newBench(t, debugguard.Off), refuses: rapid.Bool().Draw(rt, "refuse")}
		m.guard = m.over(reusing(), debugguard.Ledger, func(c *debugguard.Config) { c.Advanced.Refuse = m.refuses })
		rt.Repeat(map[string]func(*rapid.T){
			"allocate": m.allocate, "allocate another": m.allocate, "write": m.write, "read": m.read, "point": m.point,
			"free": m.freeOne, "late use": m.late, "free again": m.freeAgain,
			"switch": func(rt *rapid.T) {
				if rapid.IntRange(0, 3).Draw(rt, "off") == 0 {
					m.mode(debugguard.Off)
					return
				}
				if m.guard.Mode() == debugguard.Off {
					m.unseen = core.NextGeneration()
				}
				m.mode(debugguard.Ledger)
			},
			"drain": func(*rapid.T) { m.drain() },
		})
		for _, b := range m.all {
			if b.live {
				m.free(b.Block)
			}
		}
		m.drain()
		m.expect(rt, "the end", "", nil)
	})
}
