package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// Planted says what became of a planted bug.
type Planted struct {
	Kind       string `json:"kind"`
	Tag        string `json:"tag"`
	Generation uint64 `json:"generation"`
	// Found is whether a finding names the kind, the tag and the generation, or the driver refused the
	// culprit's call because a hunt had taken the victim's memory off the map.
	Found bool `json:"found"`
	// Why says, if it was not found, why this tier cannot see it; and
	// otherwise who saw it.
	Why string `json:"why"`
	// Refused is the error that the runtime gave the culprit, if it did.
	Refused string `json:"refused,omitempty"`
}

// plantBytes is the size of a victim: always sampled at the demo's rate, and
// small enough to be poisoned whole.
const plantBytes = 1 << 20

// bug is a kind of bug that can be planted.
type bug struct {
	// plant makes the mistake and notes its victim. The error is that of the
	// planting itself; what the runtime answers to the mistake is noted.
	plant func(ctx context.Context, p *Plant) error
	// blind says why the bug was not seen, and unmapped the same of a hunt that takes freed blocks
	// off the map, if that is another reason.
	blind, unmapped string
}

// bugs are the kinds that can be planted. The code that plants them uses the
// runtime like a service with that bug would, and the driver behind its back
// where the bug is one of a kernel; it never tells the runtime.
var bugs = map[core.FindingKind]bug{
	names.FindingUseAfterFreeWrite: {plant: plantUseAfterFreeWrite,
		blind:    "a write after the free is seen where the guard quarantines the block (--guard=sample:65536 or hunt), or by the simulated device's oracle; the victim was not guarded, and on a GPU nothing else looks at freed bytes",
		unmapped: "the hunt had taken the memory off the map, and the driver took the write all the same; --guard=hunt keeps the memory and compares its bytes"},
	names.FindingUseAfterFreeRead: {plant: plantUseAfterFreeRead,
		blind:    "a read changes no byte, so a guard that compares bytes cannot see it; only the simulated device's oracle can, or a hunt that takes freed blocks off the map (--guard=hunt:unmap), where a core dump of the GPU names the access",
		unmapped: "the hunt had taken the memory off the map, and no core dump of the GPU named the read: \"fencepost guard\" says whether faults are named, or why not"},
	names.FindingOutOfBoundsRead: {plantOutOfBoundsRead,
		"a read changes no byte, so a guard that compares bytes cannot see it; only the simulated device's oracle can, where it lands in memory without an owner", ""},
	names.FindingOutOfBoundsWrite: {plantOutOfBounds,
		"a write behind the block is seen where the block lies between red zones (--guard=sample or hunt), and by the simulated device's oracle where it lands in memory without an owner", ""},
	names.FindingUnderflow: {plantUnderflow,
		"a write in front of the block is seen where the block lies between red zones (--guard=sample or hunt), and by the simulated device's oracle where it lands in memory without an owner", ""},
	names.FindingDoubleFree: {plantDoubleFree,
		"a second free is refused in every tier, but only the ledger can tell whose block it was (--guard=ledger or more)", ""},
	names.FindingForeignFree: {plantForeignFree,
		"a foreign free is refused in every tier, but only the ledger reports it (--guard=ledger or more)", ""},
	names.FindingStaleHandle: {plantStaleHandle,
		"a stale handle is refused in every tier, but only the ledger can tell whose it was (--guard=ledger or more)", ""},
	names.FindingMissingFence: {plantMissingFence,
		"an access that was not declared is invisible to the runtime; only the simulated device's oracle, which sees every access, can report the race", ""},
	names.FindingUseBeforeAlloc: {plantUseBeforeAlloc,
		"an access that was not declared is invisible to the runtime; only the simulated device's oracle, which sees every access, can report it", ""},
	names.FindingLeak:        {plantLeak, "the leak should have been listed by Close", ""},
	names.FindingOutOfMemory: {plantOutOfMemory, "the device should have run out of memory", ""},
	names.FindingStickyError: {plantStickyError, "the device did not fault on the illegal address", ""},
}

// oracleOnly are the kinds that only the simulated device's oracle sees,
// and elsewhere is what a judgement on a GPU, which has none, adds.
var oracleOnly = []core.FindingKind{names.FindingUseAfterFreeRead, names.FindingOutOfBoundsRead,
	names.FindingMissingFence, names.FindingUseBeforeAlloc}

const elsewhere = "; this ran on a GPU, which has no oracle: plant it with --device=sim"

// Kinds are the bugs that can be planted, sorted.
func Kinds() []string {
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(bugs)) {
		kinds = append(kinds, string(kind))
	}
	return kinds
}

// Plant is one bug to be planted, and the watch for what is found of its kind.
type Plant struct {
	rt    *fencepost.Runtime
	onGPU bool
	kind  core.FindingKind
	bug   bug

	mu      sync.Mutex
	found   []core.Finding
	victim  core.Block
	refused error
	unmaps  bool
	done    bool
}

// NewPlant returns the plant for a kind; an unknown one is refused.
func NewPlant(kind string) (*Plant, error) {
	b, ok := bugs[core.FindingKind(kind)]
	if !ok {
		return nil, fmt.Errorf("--inject=%s: no such bug; say one of %s", kind, strings.Join(Kinds(), ", "))
	}
	return &Plant{kind: core.FindingKind(kind), bug: b}, nil
}

// maxWatched bounds the findings kept for the judgement.
const maxWatched = 1024

// Watch keeps the findings of the planted kind, and of accesses that faulted; it is for
// [fencepost.Config.OnFinding].
func (p *Plant) Watch(f core.Finding) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if (f.Kind == p.kind || f.Kind == names.FindingIllegalAccess) && len(p.found) < maxWatched {
		p.found = append(p.found, f)
	}
}

// Do plants the bug, on streams of its own.
func (p *Plant) Do(ctx context.Context) error {
	if err := p.bug.plant(ctx, p); err != nil {
		return fmt.Errorf("planting %s: %w", p.kind, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = true
	return nil
}

// note remembers the victim, for the judgement.
func (p *Plant) note(b core.Block) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.victim = b
}

// answered remembers what the runtime said to the mistake.
func (p *Plant) answered(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused = err
}

func (p *Plant) tag() core.Tag { return core.Tag("inject." + string(p.kind)) }

// victimOn allocates the victim and lets a declared launch write it.
func (p *Plant) victimOn(ctx context.Context, on *cuda.Lease) (core.Block, error) {
	b, err := p.allocateOn(ctx, on)
	if err != nil {
		return b, err
	}
	return b, p.use(ctx, b, on)
}

// allocateOn allocates a block that may become the victim.
func (p *Plant) allocateOn(ctx context.Context, on *cuda.Lease) (core.Block, error) {
	return p.rt.Allocate(ctx, core.Request{Bytes: plantBytes, Stream: on.ID(), Tag: p.tag()})
}

// use makes a block the victim, and writes all of it as is right.
func (p *Plant) use(ctx context.Context, b core.Block, on *cuda.Lease) error {
	p.note(b)
	return p.rt.LaunchNamed(ctx, "inject.honest", on.ID(), []core.Use{{Block: b.ID, Access: core.Write}}, func(context.Context) error {
		return p.rt.Driver().MemsetAsync(b.ID.Ptr, 1, b.Requested, on.Handle())
	})
}

// onStream runs plant with a lease.
func (p *Plant) onStream(ctx context.Context, plant func(*cuda.Lease) error) error {
	on, err := p.rt.Streams().Acquire(ctx, p.tag())
	if err != nil {
		return err
	}
	return errors.Join(plant(on), on.Release())
}

// Judge looks for the planted bug among the findings.
func (p *Plant) Judge() *Planted {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := &Planted{Kind: string(p.kind), Tag: string(p.victim.Tag), Generation: uint64(p.victim.ID.Generation)}
	if p.refused != nil {
		out.Refused = p.refused.Error()
	}
	for _, f := range p.found {
		if f.Victim.Tag == p.victim.Tag && f.Victim.ID.Generation == p.victim.ID.Generation {
			out.Found, out.Why = true, "seen by "+f.Source
			return out
		}
	}
	if p.unmaps && invalidValue(p.refused) {
		out.Found, out.Why = true, "refused by the driver at the call, because the hunt took the memory off the map"
		return out
	}
	out.Why = p.bug.blind
	if p.unmaps {
		out.Why = cmp.Or(p.bug.unmapped, out.Why)
	}
	if p.onGPU && slices.Contains(oracleOnly, p.kind) {
		out.Why += elsewhere
	}
	if !p.done {
		out.Why = "the run ended before the bug was planted; raise --for"
	}
	return out
}

// invalidValue reports whether the driver refused a call for an address of which it knows nothing.
func invalidValue(err error) bool {
	d, ok := errors.AsType[*core.DriverError](err)
	return ok && d.Code == driver.InvalidValue
}
