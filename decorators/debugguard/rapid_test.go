package debugguard_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// machine drives a guard at random and knows what it has spoilt.
type machine struct {
	*bench
	live   []core.Block
	parked []core.Block // freed and, as far as the machine knows, still watched
	open   []core.Ticket
	spoilt map[string]bool
}

// spoil notes that a finding must come, once for each kind and block.
func (m *machine) spoil(kind core.FindingKind, g core.Generation) {
	m.spoilt[fmt.Sprint(kind, g)] = true
}

func pick[T any](rt *rapid.T, of []T) int {
	if len(of) == 0 {
		rt.Skip("there is none")
	}
	return rapid.IntRange(0, len(of)-1).Draw(rt, "which")
}

func (m *machine) allocate(rt *rapid.T) {
	stream := core.StreamID(rapid.IntRange(0, 2).Draw(rt, "stream"))
	m.live = append(m.live, m.allocOn(stream, rapid.Uint64Range(1, 3000).Draw(rt, "bytes")))
}

func (m *machine) use(rt *rapid.T) {
	block := m.live[pick(rt, m.live)]
	m.open = append(m.open, m.prepare("launch", block.ID.AllocStream, block, block))
	m.mem.poke(block.ID.Ptr, int(block.Bytes))
}

func (m *machine) end(rt *rapid.T) {
	i := pick(rt, m.open)
	must.Do(rt, m.guard.FinishUse(ctx, m.open[i]))
	m.open = slices.Delete(m.open, i, i+1)
}

func (m *machine) freeOne(rt *rapid.T) {
	i := pick(rt, m.live)
	if m.free(m.live[i]).State == core.Quarantined {
		m.parked = append(m.parked, m.live[i])
	}
	m.live = slices.Delete(m.live, i, i+1)
}

func (m *machine) overrun(rt *rapid.T) {
	block := m.live[pick(rt, m.live)]
	at := rapid.Uint64Range(0, 200).Draw(rt, "behind")
	if m.spoilt[fmt.Sprint(names.FindingOutOfBoundsWrite, block.ID.Generation)] {
		rt.Skip("a second write of the same place may restore it")
	}
	m.mem.poke(block.ID.Ptr+block.Bytes+at, 1)
	m.spoil(names.FindingOutOfBoundsWrite, block.ID.Generation)
}

func (m *machine) underrun(rt *rapid.T) {
	block := m.live[pick(rt, m.live)]
	at := rapid.Uint64Range(1, 256).Draw(rt, "before")
	if m.spoilt[fmt.Sprint(names.FindingUnderflow, block.ID.Generation)] {
		rt.Skip("a second write of the same place may restore it")
	}
	m.mem.poke(block.ID.Ptr-at, 1)
	m.spoil(names.FindingUnderflow, block.ID.Generation)
}

func (m *machine) writeAfterFree(rt *rapid.T) {
	i := pick(rt, m.parked)
	block := m.parked[i]
	m.parked = slices.Delete(m.parked, i, i+1)
	if m.guard.State(block.ID) != core.Quarantined {
		rt.Skip("it has left quarantine")
	}
	m.mem.poke(block.ID.Ptr+rapid.Uint64Range(0, block.Bytes-1).Draw(rt, "at"), 1)
	m.spoil(names.FindingUseAfterFreeWrite, block.ID.Generation)
}

// check ends everything and compares what was found with what was spoilt.
func (m *machine) check(rt *rapid.T) {
	for len(m.open) > 0 {
		m.end(rt)
	}
	for _, block := range m.live {
		m.free(block)
	}
	m.live, m.parked = nil, nil
	m.empty()
	var found, want []string
	for _, f := range m.sink.taken() {
		found = append(found, fmt.Sprint(f.Kind, f.Victim.ID.Generation))
	}
	for what := range m.spoilt {
		want = append(want, what)
	}
	slices.SortFunc(found, cmp.Compare)
	slices.SortFunc(want, cmp.Compare)
	if !slices.Equal(found, want) {
		rt.Fatalf("found %v, want %v", found, want)
	}
}

func TestExactlyTheSpoiltBlocksAreFound(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &machine{spoilt: map[string]bool{}, bench: newBench(t, debugguard.Hunt, func(c *debugguard.Config) {
			c.QuarantineBytes = rapid.SampledFrom([]uint64{1, 4 << 10, 1 << 20}).Draw(rt, "quarantine")
		})}
		rt.Repeat(map[string]func(*rapid.T){
			"allocate": m.allocate, "use": m.use, "end": m.end, "free": m.freeOne,
			"overrun": m.overrun, "underrun": m.underrun, "write after free": m.writeAfterFree,
			"flush": func(rt *rapid.T) {
				must.Do(rt, m.guard.Flush(ctx))
			},
			"reap":         func(*rapid.T) { _ = m.guard.ReapPending(ctx) },
			"hold device":  func(*rapid.T) { m.mem.hold() },
			"catch up":     func(*rapid.T) { m.mem.release() },
			"pass backend": func(*rapid.T) { m.fake.Pass() },
		})
		m.mem.release()
		m.check(rt)
	})
}
