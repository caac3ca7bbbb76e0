package findings

import (
	"cmp"
	"context"
	"encoding/binary"
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

// dumpTakes is how long a dump is waited for: one of all the threads of an H200 takes 12 s.
const dumpTakes = time.Minute

// explainLater tells of a lost device when its dump is read, if one has begun.
func (r *Reporter) explainLater(f core.Finding) (later bool) {
	if f.Kind != names.FindingStickyError || r.cfg.Fault == nil {
		return false
	}
	wait := r.cfg.Fault()
	if wait == nil {
		return false
	}
	r.explaining.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), dumpTakes)
		defer cancel()
		if d, err := wait(ctx); err != nil {
			f.Text += "; what the GPU did is not known: " + err.Error()
		} else {
			stack, _ := r.cfg.Stack()
			f = r.translator.explain(f, d, stack)
		}
		r.handle(f)
	})
	return true
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
func (o *oracleTranslator) explain(lost core.Finding, d *gpucore.Dump, stack Stack) core.Finding {
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
	params := o.parameters(grid, stack)
	culprits := culprits(lost.Suspects, fault.Kernel, params)
	switch len(culprits) {
	case 1:
		culprits[0].Access = accessOf(fault.Access.Kind)
		f.Suspects, f.MoreSuspects = culprits, false
		fmt.Fprintf(&text, " of launch %d %q", culprits[0].LaunchID, culprits[0].Launch)
	case 0:
		text.WriteString(", of which its parameters do not tell the launch,")
	default:
		f.Suspects = slices.Concat(culprits, slices.DeleteFunc(slices.Clone(lost.Suspects), func(u core.UseRecord) bool {
			return slices.ContainsFunc(culprits, func(c core.UseRecord) bool { return c.LaunchID == u.LaunchID })
		}))
		fmt.Fprintf(&text, ", of one of %d launches,", len(culprits))
	}
	thread := fault.Thread
	if addresses(fault.Exception) {
		f.Kind = names.FindingIllegalAccess
		if lane := o.access(&f, &text, &fault.Access, params, stack); lane != nil {
			thread = lane.Thread
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

// addresses reports whether an exception is of an address that was accessed.
func addresses(e gpucore.Exception) bool {
	switch e {
	case 1, 5, 6, 7, 10, 11, 14, 15: // CUDBG_EXCEPTION_*
		return true
	}
	return false
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

// parameter is a parameter of a kernel that points into a block, as its owner knows it, or into one that was there, or is near one.
type parameter struct {
	ptr    uint64
	block  core.Finding
	beside bool
}

// parameters are those that do.
func (o *oracleTranslator) parameters(grid *gpucore.Grid, stack Stack) (found []parameter) {
	if grid == nil {
		return nil
	}
	const pointer = 8
	for at := 0; at+pointer <= len(grid.Params); at += pointer {
		ptr := binary.LittleEndian.Uint64(grid.Params[at:])
		b, beside := o.holder(stack, ptr), false
		if b.ID.Generation == 0 {
			b, beside = o.nearest(stack, ptr), true
		}
		if b.ID.Generation != 0 {
			known, _ := stack.owned(b)
			found = append(found, parameter{ptr, known, beside})
		}
	}
	return found
}

// culprits are the launches in flight that fit the best: that declared most of the blocks which the kernel was given, or have blocks of
// their tags, or else have the kernel's name.
func culprits(inFlight []core.UseRecord, kernel string, params []parameter) []core.UseRecord {
	fits := func(u core.UseRecord) (n int) {
		for _, p := range params {
			switch {
			case p.beside:
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

// access says what was accessed, and whose memory that is. The lane that it returns did it, nil if that is not known.
func (o *oracleTranslator) access(f *core.Finding, text *strings.Builder, a *gpucore.Access, params []parameter, stack Stack) *gpucore.Lane {
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
		lane, of := o.culprit(a.Lanes, stack)
		switch {
		case lane != nil && of.Victim.ID.Generation != 0:
			fmt.Fprintf(text, " at %#x,", lane.Address)
			harmed(f, text, of, lane.Address)
		case lane != nil:
			fmt.Fprintf(text, " at %#x, where the runtime never had memory", lane.Address)
		default:
			fmt.Fprintf(text, " from %#x to %#x, of which it is not known what was not there", a.Lowest, a.Highest+uint64(a.Bytes))
		}
		return lane
	}
	fmt.Fprintf(text, " %s an address that is not known (%s)", did, a.Why)
	for _, p := range params {
		if p.beside || p.block.Victim.State != core.Live {
			fmt.Fprintf(text, "; its parameter %#x is", p.ptr)
			harmed(f, text, p.block, p.ptr)
			return nil
		}
	}
	return nil
}

// culprit is the lane of a warp whose access cannot have been of memory that is there: the first in a block that was freed, or else
// beside one. Of those elsewhere, where others may have memory, only a single one is.
func (o *oracleTranslator) culprit(lanes []gpucore.Lane, stack Stack) (lane *gpucore.Lane, of core.Finding) {
	var beside, elsewhere []*gpucore.Lane
	for i := range lanes {
		l := &lanes[i]
		switch b := o.holder(stack, l.Address); {
		case b.ID.Generation == 0 && o.nearest(stack, l.Address).ID.Generation != 0:
			beside = append(beside, l)
		case b.ID.Generation == 0:
			elsewhere = append(elsewhere, l)
		default:
			if known, _ := stack.owned(b); known.Victim.State != core.Live {
				return l, known
			}
		}
	}
	switch {
	case len(beside) > 0:
		known, _ := stack.owned(o.nearest(stack, beside[0].Address))
		return beside[0], known
	case len(elsewhere) == 1:
		return elsewhere[0], core.Finding{}
	}
	return nil, core.Finding{}
}

// harmed says where an address lies of the block that it harms.
func harmed(f *core.Finding, text *strings.Builder, known core.Finding, ptr uint64) {
	b := known.Victim
	f.Victim, f.AllocStack, f.FreeStack, f.Uses = b, known.AllocStack, known.FreeStack, known.Uses
	f.Offset = int64(ptr - b.ID.Ptr)
	switch size := int64(b.Requested); {
	case f.Offset < 0:
		fmt.Fprintf(text, " %d bytes before", -f.Offset)
	case f.Offset >= size:
		fmt.Fprintf(text, " %d bytes behind the end of", f.Offset-size)
	default:
		fmt.Fprintf(text, " %d bytes into", f.Offset)
	}
	fmt.Fprintf(text, " block %q, generation %s, %d bytes", b.Tag, b.ID.Generation, b.Requested)
	if b.State != core.Live {
		text.WriteString(", which was freed")
	}
}

// holder is the block that holds an address, or the last one that did among those that are remembered.
func (o *oracleTranslator) holder(stack Stack, ptr uint64) (b core.Block) {
	holds := func(b core.Block) bool { return ptr-b.ID.Ptr < b.Bytes }
	if stack.Base != nil {
		stack.Base.Inspect().Blocks(func(info core.BlockInfo) bool {
			if holds(info.Block) && info.Block.ID.Generation > b.ID.Generation {
				b = info.Block
			}
			return true
		})
	}
	if b.ID.Generation != 0 {
		return b
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for gone := range o.released.Newest() {
		if holds(*gone) {
			return *gone
		}
	}
	return b
}

// near is how far from a block an access is said to be of it.
const near = 64 << 20

// nearest is the live block that is nearest to an address in none.
func (o *oracleTranslator) nearest(stack Stack, ptr uint64) (b core.Block) {
	if stack.Base == nil {
		return b
	}
	far := uint64(near)
	stack.Base.Inspect().Blocks(func(info core.BlockInfo) bool {
		apart := info.Block.ID.Ptr - ptr
		if end := info.Block.ID.Ptr + info.Block.Bytes; ptr >= end {
			apart = ptr - end
		}
		if apart < far {
			b, far = info.Block, apart
		}
		return true
	})
	return b
}
