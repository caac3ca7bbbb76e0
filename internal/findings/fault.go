package findings

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/internal/gpucore"
)

// dumpSource is the source of findings that a core dump of the GPU explains.
const dumpSource = "gpu-core-dump"

// A lost device is told of within toldWithin after its dump has begun. A dump that is not read by
// then explains the loss in a second finding, if it is read within dumpTakes. The driver opens the
// dump when it has collected the state of all multiprocessors, so what follows is quick: 0.1 to 2 s
// on an H200 with all threads in use, 8 s with the code of cuBLAS.
const (
	toldWithin = 10 * time.Second
	dumpTakes  = time.Minute
)

// explainLater tells of a lost device when its dump is read, if one has begun, and the kernel's log, if it is to be.
func (r *Reporter) explainLater(f core.Finding) (later bool) {
	if f.Kind != names.FindingStickyError {
		return false
	}
	var wait func(context.Context) (*gpucore.Dump, error)
	if r.cfg.Fault != nil {
		wait = r.cfg.Fault()
	}
	if wait == nil && r.cfg.Xids == nil {
		return false
	}
	r.explaining.Go(func() {
		var late func() (core.Finding, bool)
		if wait != nil {
			f, late = r.explainByDump(f, wait)
		}
		if r.cfg.Xids != nil {
			f.Text += "; " + r.cfg.Xids()
		}
		r.handle(f)
		if late != nil {
			if f, ok := late(); ok {
				r.handle(f)
			}
		}
	})
	return true
}

// explainByDump is the finding of a lost device with what its dump says. late is nil, or waits for
// a dump that takes long, and reports whether it explains the loss.
func (r *Reporter) explainByDump(
	f core.Finding, wait func(context.Context) (*gpucore.Dump, error),
) (_ core.Finding, late func() (core.Finding, bool)) {
	explained := func(patience time.Duration) (core.Finding, error) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		d, err := wait(ctx)
		if err != nil || d == nil {
			return f, err
		}
		stack, _ := r.cfg.Stack()
		return stack.explain(f, d), nil
	}
	found, err := explained(toldWithin)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		found.Text += fmt.Sprintf("; the driver's core dump was not at its end after %v, and what it says follows",
			toldWithin)
		return found, func() (core.Finding, bool) {
			found, err := explained(dumpTakes - toldWithin)
			return found, err == nil
		}
	case err != nil:
		found.Text += "; what the GPU did is not known: " + err.Error()
	}
	return found, nil
}

// Wait waits for what is told later, while ctx lasts.
func (r *Reporter) Wait(ctx context.Context) error {
	done := make(chan struct{})
	go func() { r.explaining.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
	return nil
}

// explain is the finding of a lost device with what its dump says: which kernel of which launch, what it accessed, and whose that is.
func (s Stack) explain(lost core.Finding, d *gpucore.Dump) core.Finding {
	if len(d.Faults) == 0 {
		lost.Text += "; the GPU's core dump shows no fault"
		return lost
	}
	fault := clearest(d.Faults)
	var grid *gpucore.Grid
	if fault.Grid >= 0 {
		grid = &d.Grids[fault.Grid]
	}
	f := lost
	f.Source = dumpSource
	var text strings.Builder
	fmt.Fprintf(&text, "kernel %q", cmp.Or(fault.Kernel, "not known"))
	from, sure := s.Enqueued.of(fault.Kernel, grid)
	ptrs := words(grid)
	if grid == nil {
		ptrs = from.kernel.words()
	}
	params := len(ptrs)
	for _, l := range fault.Access.Lanes {
		ptrs = append(ptrs, l.Address)
	}
	places := s.places(ptrs)
	if !sure {
		from = origin{launches: fitting(lost.Suspects, fault.Kernel, places[:params])}
	}
	from.tell(&f, &text, accessOf(fault.Access.Kind))
	thread := fault.Thread
	if fault.Exception.OfAccess() {
		f.Kind = names.FindingIllegalAccess
		if lane := access(&f, &text, &fault.Access, places[:params], places[params:]); lane >= 0 {
			thread = fault.Access.Lanes[lane].Thread
		}
	}
	fmt.Fprintf(&text, ": %s at %s+%#x", fault.Exception, cmp.Or(fault.Function, "pc"), cmp.Or(fault.Offset, fault.PC))
	if grid != nil {
		fmt.Fprintf(&text, ", block %v, thread %v", fault.Block, thread)
	}
	if more := len(d.Faults) + d.MoreFaults - 1; more > 0 {
		fmt.Fprintf(&text, ", and %d more warps", more)
	}
	f.Text = text.String() + "; " + lost.Text
	return f
}

// tell puts into a finding what may have enqueued the kernel, which made an access.
func (o *origin) tell(f *core.Finding, text *strings.Builder, did core.Access) {
	switch n := len(o.launches); {
	case o.outside && n == 0:
		f.Suspects, f.MoreSuspects = nil, false
		text.WriteString(", which was enqueued outside the runtime's launches,")
	case n == 1 && !o.outside:
		u := o.launches[0]
		u.Access = did
		f.Suspects, f.MoreSuspects = []core.UseRecord{u}, false
		fmt.Fprintf(text, " of launch %d %q", u.LaunchID, u.Launch)
	case n == 0:
		text.WriteString(", of which its parameters do not tell the launch,")
	default:
		f.Suspects = slices.Concat(o.launches, slices.DeleteFunc(slices.Clone(f.Suspects), func(u core.UseRecord) bool {
			return slices.ContainsFunc(o.launches, func(c core.UseRecord) bool { return c.LaunchID == u.LaunchID })
		}))
		fmt.Fprintf(text, ", of one of %d launches,", n)
		if o.outside {
			text.WriteString(" or outside the runtime's,")
		}
	}
}

// clearest is the fault of which the most is known.
func clearest(faults []gpucore.Fault) *gpucore.Fault {
	best := &faults[0]
	for i := range faults {
		if f := &faults[i]; f.Access.Known && !best.Access.Known || f.Grid >= 0 && best.Grid < 0 {
			best = f
		}
	}
	return best
}

func accessOf(k gpucore.AccessKind) core.Access {
	switch k {
	case gpucore.AccessRead:
		return core.Read
	case gpucore.AccessWrite:
		return core.Write
	case gpucore.AccessAtomic:
		return core.ReadWrite
	}
	return 0
}

// place is an address, and the block that holds it, as its owner knows it, or the last one that did of those remembered, or else a
// live one near it: then it is beside that. Generation 0: none.
type place struct {
	ptr   uint64
	block core.Finding
	// beside: it is not in the block. gone: it is, and the block was released. unmapped: the memory went with it.
	beside, gone, unmapped bool
}

// near is how far from a block an address is said to be of it.
const near = 64 << 20

// places says of each address where it is, by one pass over all blocks, of which there may be a million.
func (s Stack) places(ptrs []uint64) []place {
	sorted := slices.Compact(slices.Sorted(slices.Values(ptrs)))
	held, beside, far := make([]core.Block, len(sorted)), make([]core.Block, len(sorted)), make([]uint64, len(sorted))
	// within calls f with each address from low on that is below high.
	within := func(low, high uint64, f func(i int)) {
		for i, _ := slices.BinarySearch(sorted, low); i < len(sorted) && sorted[i] < high; i++ {
			f(i)
		}
	}
	gone := make([]bool, len(sorted))
	hold := func(b core.Block, released bool) {
		within(b.ID.Ptr, b.ID.Ptr+b.Bytes, func(i int) {
			if b.ID.Generation > held[i].ID.Generation {
				held[i], gone[i] = b, released
			}
		})
	}
	if s.Base != nil {
		s.Base.Inspect().Blocks(func(info core.BlockInfo) bool {
			b := info.Block
			end := b.ID.Ptr + b.Bytes
			hold(b, false)
			within(b.ID.Ptr-min(near, b.ID.Ptr), end+near, func(i int) {
				apart := max(b.ID.Ptr, sorted[i]) - sorted[i]
				if sorted[i] >= end {
					apart = sorted[i] - end
				}
				if beside[i].ID.Generation == 0 || apart < far[i] {
					beside[i], far[i] = b, apart
				}
			})
			return true
		})
	}
	if s.Released != nil {
		for b := range s.Released {
			hold(b, true)
		}
	}
	all := make([]place, len(ptrs))
	for k, ptr := range ptrs {
		i, _ := slices.BinarySearch(sorted, ptr)
		all[k] = place{ptr: ptr, beside: held[i].ID.Generation == 0, gone: gone[i], unmapped: gone[i] && s.Unmaps}
		all[k].block, _ = s.owned(held[i])
		if all[k].beside {
			all[k].block, _ = s.owned(beside[i])
		}
	}
	return all
}

// none reports whether nothing is known of the address.
func (p *place) none() bool { return p.block.Victim.ID.Generation == 0 }

// faults reports whether an access there may fault: not in a block that is in the books.
func (p *place) faults() bool { return p.none() || p.beside || p.gone }

// words are the parameters of a kernel that may be addresses.
func words(grid *gpucore.Grid) (ptrs []uint64) {
	if grid == nil {
		return nil
	}
	const pointer = 8
	for at := 0; at+pointer <= len(grid.Params); at += pointer {
		ptrs = append(ptrs, binary.LittleEndian.Uint64(grid.Params[at:]))
	}
	return ptrs
}

// fitting are the launches in flight that fit the best: that declared most of the blocks which the kernel was given, or have blocks of
// their tags, or else have the kernel's name.
func fitting(inFlight []core.UseRecord, kernel string, params []place) []core.UseRecord {
	fits := func(u core.UseRecord) (n int) {
		for _, p := range params {
			switch {
			case p.beside || p.none():
			case slices.ContainsFunc(p.block.Uses, func(of core.UseRecord) bool { return of.LaunchID == u.LaunchID }):
				n += 4
			case slices.Contains(u.Tags[:], p.block.Victim.Tag):
				n += 2
			}
		}
		if u.Launch == kernel {
			n++
		}
		return n
	}
	best, list := 1, []core.UseRecord(nil)
	for _, u := range inFlight {
		switch n := fits(u); {
		case n > best:
			best, list = n, []core.UseRecord{u}
		case n == best:
			list = append(list, u)
		}
	}
	return list
}

// access says what was accessed, and whose memory that is. The lane that it returns did it, -1 if that is not known.
func access(f *core.Finding, text *strings.Builder, a *gpucore.Access, params, lanes []place) (lane int) {
	did := "accessed"
	switch a.Kind {
	case gpucore.AccessRead:
		did = "read"
	case gpucore.AccessWrite:
		did = "wrote"
	case gpucore.AccessAtomic:
		did = "read and wrote"
	}
	if a.Known {
		fmt.Fprintf(text, " %s %d bytes", did, a.Bytes)
		lane = faulty(lanes)
		switch {
		case lane < 0:
			fmt.Fprintf(text, " from %#x to %#x, of which it is not known what was not there", a.Lowest, a.Highest+uint64(a.Bytes))
		case lanes[lane].none():
			fmt.Fprintf(text, " at %#x, where the runtime never had memory", lanes[lane].ptr)
		default:
			fmt.Fprintf(text, " at %#x,", lanes[lane].ptr)
			harmed(f, text, &lanes[lane])
		}
		return lane
	}
	fmt.Fprintf(text, " %s an address that is not known (%s)", did, a.Why)
	var candidates []*place
	for i := range params {
		if p := &params[i]; !p.none() && p.faults() && !p.usedBy(f.Suspects) {
			candidates = append(candidates, &params[i])
		}
	}
	for _, p := range candidates[:min(len(candidates), 4)] {
		fmt.Fprintf(text, "; a candidate is its parameter %#x,", p.ptr)
		if len(candidates) == 1 && p.unmapped {
			harmed(f, text, p)
		} else {
			p.describe(text, f.Time)
		}
	}
	return -1
}

// usedBy reports whether a launch declared the block of the address, whose memory stays until that is done, also if it is freed meanwhile.
func (p *place) usedBy(launches []core.UseRecord) bool {
	return slices.ContainsFunc(p.block.Uses, func(u core.UseRecord) bool {
		return slices.ContainsFunc(launches, func(l core.UseRecord) bool { return l.LaunchID == u.LaunchID })
	})
}

// faulty is the lane of a warp whose access faulted: the first in memory that was taken away. Or else it is the first that may have
// faulted, if all those lie in or beside the same block, or there is one only. It is -1 if that is not known.
func faulty(lanes []place) int {
	if i := slices.IndexFunc(lanes, func(p place) bool { return p.unmapped }); i >= 0 {
		return i
	}
	first := slices.IndexFunc(lanes, func(p place) bool { return p.faults() })
	if first < 0 {
		return -1
	}
	of := &lanes[first]
	if slices.ContainsFunc(lanes[first+1:], func(p place) bool {
		return p.faults() && (of.none() || p.gone != of.gone || p.block.Victim.ID != of.block.Victim.ID)
	}) {
		return -1
	}
	return first
}

// harmed says where an address lies of the block that it harms.
func harmed(f *core.Finding, text *strings.Builder, p *place) {
	f.Victim, f.AllocStack, f.FreeStack, f.Uses = p.block.Victim, p.block.AllocStack, p.block.FreeStack, p.block.Uses
	f.Allocated, f.Freed = p.block.Allocated, p.block.Freed
	f.Offset = p.describe(text, f.Time)
}

// describe says where the address lies, of a device that was lost at a time, and returns its offset into the block.
func (p *place) describe(text *strings.Builder, lost time.Time) (offset int64) {
	b := p.block.Victim
	offset = int64(p.ptr - b.ID.Ptr)
	switch size := int64(b.Requested); {
	case offset < 0:
		fmt.Fprintf(text, " %d bytes before", -offset)
	case offset >= size:
		fmt.Fprintf(text, " %d bytes behind the end of", offset-size)
	default:
		fmt.Fprintf(text, " %d bytes into", offset)
	}
	fmt.Fprintf(text, " block %q, generation %s, %d bytes", b.Tag, b.ID.Generation, b.Requested)
	if b.State != core.Live {
		text.WriteString(", which was freed")
		if freed := p.block.Freed; !freed.IsZero() {
			fmt.Fprintf(text, " %v before", lost.Sub(freed).Round(100*time.Microsecond))
		}
	}
	return offset
}
