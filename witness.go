package fencepost

import (
	"fmt"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/telemetry"
	"github.com/fencepost-gpu/fencepost/telemetry/dump"
	"github.com/fencepost-gpu/fencepost/telemetry/incident"
)

// tee passes findings to the collection, the watch of health, the caller's
// function, the incident files, the dumps, and to who stops the process.
type tee struct {
	collection *telemetry.Findings
	health     *healthWatch
	forward    func(core.Finding)
	incidents  *incident.Writer
	dumps      *dump.Writer
	stop       *stopper
}

func (r *Runtime) newTee(cfg Config) tee {
	t := tee{collection: r.findings, health: r.health, forward: cfg.OnFinding, incidents: r.incidents, dumps: r.dumps}
	if cfg.GuardPolicy == PolicyStop {
		t.stop = newStopper(cfg, r.incidents, r.dumps)
	}
	return t
}

func (t tee) Report(f core.Finding) {
	if t.stop != nil && stops(f.Kind) {
		if t.stop.take(f, t.tell) {
			return // delivered
		}
	} else {
		t.tell(f)
	}
	if t.incidents != nil {
		t.incidents.Report(f)
	}
	dumpUpon(t.dumps, f)
}

// tell calls what the caller brought, which may block though it must not.
func (t tee) tell(f core.Finding) {
	t.collection.Report(f)
	t.health.Report(f)
	if t.forward != nil {
		t.forward(f)
	}
}

// rememberedBlocks is how many released blocks a witness can still name.
const rememberedBlocks = 8192

// witness takes the findings of the runtime and the guard, and turns those of
// the simulated device's oracle, which knows addresses only, into findings
// that name the block.
type witness struct {
	sink core.FindingSink

	mu       sync.Mutex
	stack    core.Resource
	released []core.Block
	next     int
}

func newWitness(sink core.FindingSink) *witness { return &witness{sink: sink} }

// Report passes a finding on.
func (w *witness) Report(f core.Finding) { w.sink.Report(f) }

// watch makes the witness remember the blocks of a stack. The base knows the
// addresses that the device sees, so it is the base that is asked.
func (w *witness) watch(stack core.Resource) {
	base := core.Base(stack)
	base.Subscribe(w)
	w.mu.Lock()
	w.stack = base
	w.mu.Unlock()
}

// Released remembers a block that left the books.
func (w *witness) Released(b core.Block) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.released) < rememberedBlocks {
		w.released = append(w.released, b)
		return
	}
	w.released[w.next] = b
	w.next = (w.next + 1) % rememberedBlocks
}

// oracle takes a finding of the simulated device.
func (w *witness) oracle(f sim.Finding) {
	kind := oracleKind(f)
	if kind == "" {
		return // the runtime reports the lost context itself
	}
	victim := w.blockAt(f)
	if f.Kind == sim.IllegalAddress && victim.ID.Generation == 0 {
		return // an address that was nobody's: nothing to add to that report
	}
	w.sink.Report(core.Finding{Kind: kind, Source: "sim-oracle", Victim: victim, Text: fmt.Sprintf("the device's oracle: %s", f.Text)})
}

func oracleKind(f sim.Finding) core.FindingKind {
	switch f.Kind {
	case sim.Race, sim.FreeRace:
		return core.FindingMissingFence
	case sim.UseBeforeAlloc:
		return core.FindingUseBeforeAlloc
	case sim.UseAfterFree, sim.IllegalAddress: // of a block that is gone, if of any
		if f.First.Access.Writes() {
			return core.FindingUseAfterFreeWrite
		}
		return core.FindingUseAfterFreeRead
	case sim.Undeclared:
		return core.FindingUndeclaredAccess
	case sim.OutOfBounds:
		return core.FindingOutOfBoundsWrite
	}
	return ""
}

// blockAt names the block of a finding: the newest released one at the
// address for an access after the free, the one that holds it otherwise.
func (w *witness) blockAt(f sim.Finding) core.Block {
	w.mu.Lock()
	defer w.mu.Unlock()
	ptr := f.BlockPtr
	if ptr == 0 {
		ptr = f.First.Ptr
	}
	var victim core.Block
	consider := func(b core.Block) {
		if ptr-b.ID.Ptr < b.Bytes && b.ID.Generation > victim.ID.Generation {
			victim = b
		}
	}
	if inspector, ok := w.stack.(core.Inspector); ok {
		inspector.Blocks(func(info core.BlockInfo) bool {
			if !isLate(f) || info.Block.State != core.Live {
				consider(info.Block)
			}
			return true
		})
	}
	if victim.ID.Generation == 0 {
		for _, b := range w.released {
			consider(b)
		}
	}
	return victim
}

// isLate reports whether the finding is about a block that is gone.
func isLate(f sim.Finding) bool { return f.Kind == sim.UseAfterFree || f.Kind == sim.IllegalAddress }
