package sim

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/usercode"
)

// Kind is what the oracle found.
type Kind string

// The kinds of findings.
const (
	// Race: two accesses to the same bytes, one of them a write, with no
	// order between them.
	Race Kind = "race"
	// UseBeforeAlloc: an access or a free that is not ordered after the
	// allocation.
	UseBeforeAlloc Kind = "use-before-alloc"
	// UseAfterFree: an access enqueued when the block's free had been.
	UseAfterFree Kind = "use-after-free"
	// FreeRace: a free that is not ordered after an access; in mapped memory that blocks
	// are cut out of ([Device.BlockBegins]) also one that the next block there, or the
	// unmap, is not ordered after.
	FreeRace Kind = "free-race"
	// Undeclared: a launch touched what it did not declare, to the runtime or by
	// Declare of the kernel's twin.
	Undeclared Kind = "undeclared"
	// OutOfBounds: an access from a block over its bound, whatever lies there,
	// which the finding does not name: the block is the one whose bound was
	// crossed. Without a block it is an access to mapped memory outside every
	// block that the oracle remembers.
	OutOfBounds Kind = "out-of-bounds"
	// IllegalAddress: an access to memory that is not mapped. The context is
	// lost with CUDA_ERROR_ILLEGAL_ADDRESS. Other is the end of the block that
	// was there last, if one is remembered; with a block and without Other, the
	// block's bound was crossed.
	IllegalAddress Kind = "illegal-address"
	// KernelPanic: a kernel panicked, or called runtime.Goexit as a test's FailNow does. The context
	// is lost with CUDA_ERROR_LAUNCH_FAILED.
	KernelPanic Kind = "kernel-panic"
)

// Party is one operation of a finding.
type Party struct {
	// Op is the kernel's name, or "memset", "copy to device", "copy to
	// host", "copy on device", "alloc", "free", "unmap".
	Op     string
	Stream driver.Stream
	// Number tells the operations of a stream apart; 0 for an allocation or a
	// free.
	Number uint64
	// Guard says that the operation is a kernel of the debug guard's, and not
	// the program's.
	Guard bool
	// Work is where the operation comes from, nil of the guard's, of an allocation and of a free.
	Work *Work
	// Declared says that its launch declares what it did to the block. If a launch does not, How
	// says in words what is wrong with its declaration.
	Declared bool
	How      string
	// Access is what it did; zero for an allocation or a free.
	Access core.Access
	// Ptr and Bytes are the range that it touched.
	Ptr, Bytes uint64
}

// String describes the operation.
func (p Party) String() string { return p.describe(handleName) }

func (p Party) describe(name func(driver.Stream) string) string {
	if p.Access == 0 {
		return fmt.Sprintf("%s on stream %s", p.Op, name(p.Stream))
	}
	return fmt.Sprintf("%s (%s of %#x+%d) on stream %s", p.Op, p.Access, p.Ptr, p.Bytes, name(p.Stream))
}

// handleName is a stream as the driver names it.
func handleName(s driver.Stream) string { return hex(uint64(s)) }

// Finding is one thing that the oracle found. Findings that differ only in
// the ranges of their parties are counted as one, and a read as the write that is found beside it.
type Finding struct {
	Kind Kind
	// First is the offender; Other is what it collides with, zero if there
	// is no such operation.
	First, Other Party
	// BlockPtr and BlockBytes are the block's, zero if there is none, and
	// BlockStream is where it was allocated.
	BlockPtr, BlockBytes uint64
	BlockStream          driver.Stream
	// AllocPtr and AllocBytes are all that was allocated for the block, with what layers keep
	// around it: [driver.Oracle].BlockIsOwned. Withheld: its owner has given it back, and a layer
	// keeps it.
	AllocPtr, AllocBytes uint64
	Withheld             bool
	// Count is how often it happened.
	Count uint64
	// Text says it in one line.
	Text string
}

// String returns the text.
func (f Finding) String() string { return f.Text }

// Describe is the text with the streams called by the names that name gives them:
// the device knows handles, which say nothing to who leases streams.
func (f Finding) Describe(name func(driver.Stream) string) string {
	text := fmt.Sprintf("%s: %s", f.Kind, f.First.describe(name))
	other := f.Other.describe(name)
	switch {
	case f.overruns():
		text += f.crossing()
	case f.Kind == Undeclared:
		text += " is " + f.First.How
	case f.Kind == IllegalAddress && f.Other.Op != "":
		text += " of memory that is gone since " + other
	case f.Kind == UseAfterFree:
		text += " was enqueued after " + other
	case f.Other.Op != "":
		text += " is not ordered after or before " + other
	}
	if f.BlockBytes != 0 {
		text += fmt.Sprintf("; block %#x (%d bytes, allocated on stream %s)", f.BlockPtr, f.BlockBytes, name(f.BlockStream))
	}
	for _, p := range [...]Party{f.First, f.Other} {
		if p.How != "" && f.Kind != Undeclared {
			text += "; " + p.Op + " is " + p.How
		}
		if where := p.Work.Where(); where != "" {
			text += "; " + p.Op + " was enqueued " + where
		}
	}
	return text
}

// Where says in words which launch enqueued the work, and at which line; it is empty if nothing is
// known of that. It is safe for concurrent use and does not block.
func (w *Work) Where() (text string) {
	if w == nil {
		return ""
	}
	if w.Launch.LaunchID != 0 {
		text = fmt.Sprintf("in launch %d %q, ", w.Launch.LaunchID, w.Launch.Launch)
	}
	return text + "at " + cmp.Or(w.Stack().Caller(), "an unknown place")
}

// overruns reports whether the finding is of a bound that was crossed.
func (f Finding) overruns() bool {
	return f.BlockBytes != 0 && (f.Kind == OutOfBounds || f.Kind == IllegalAddress && f.Other.Op == "")
}

// crossing says which bound was crossed.
func (f Finding) crossing() string {
	switch end := f.BlockPtr + f.BlockBytes; {
	case f.First.Ptr < f.BlockPtr:
		return fmt.Sprintf(" is out of bounds, %d bytes before the block", f.BlockPtr-f.First.Ptr)
	case f.First.Ptr < end:
		return " goes on over the end of the block"
	default:
		return fmt.Sprintf(" is out of bounds, at %d bytes behind the end of the block", f.First.Ptr-end)
	}
}

// maxFindings bounds the findings kept; all are counted.
const maxFindings = 1000

// findingKey tells findings apart.
type findingKey struct {
	kind          Kind
	blk           *block
	op, otherOp   string
	stream, other driver.Stream
	writes        bool
	text          string
}

type findings struct {
	mu    sync.Mutex
	list  []Finding
	index map[findingKey]int
	total uint64
}

// Findings returns the first 1000 different findings since Open or the last
// ResetFindings. It may be called at any time, also after Close.
func (d *Device) Findings() []Finding {
	d.found.mu.Lock()
	defer d.found.mu.Unlock()
	return slices.Clone(d.found.list)
}

// FindingCount returns how many findings there were, repeated ones included.
func (d *Device) FindingCount() uint64 {
	d.found.mu.Lock()
	defer d.found.mu.Unlock()
	return d.found.total
}

// ResetFindings forgets the findings so far.
func (d *Device) ResetFindings() {
	d.found.mu.Lock()
	defer d.found.mu.Unlock()
	d.found.list, d.found.index, d.found.total = nil, nil, 0
}

// report files a finding about a block (nil if there is none).
func (d *Device) report(kind Kind, b *block, first, other Party) {
	f := Finding{Kind: kind, First: first, Other: other}
	f.concerns(b)
	f.Text = f.Describe(handleName)
	d.file(f, b, "")
}

// concerns makes the finding one about a block (nil if there is none).
func (f *Finding) concerns(b *block) {
	if b == nil {
		return
	}
	f.BlockPtr, f.BlockBytes, f.BlockStream = b.low(), b.high()-b.low(), b.stream
	f.AllocPtr, f.AllocBytes, f.Withheld = b.ptr, b.bytes, b.withheld.Load()
	if !b.hasOwner() {
		f.BlockPtr, f.BlockBytes = b.ptr, b.bytes
	}
}

// file counts a finding; text tells apart those that differ in nothing else.
func (d *Device) file(f Finding, b *block, text string) {
	key := findingKey{f.Kind, b, f.First.Op, f.Other.Op, f.First.Stream, f.Other.Stream, f.First.Access.Writes(), text}
	if d.found.add(key, &f) && d.config.OnFinding != nil {
		apart(func() { usercode.Call("sim.Config.OnFinding", func() { d.config.OnFinding(f) }) })
	}
}

// add reports whether the finding is new and kept. A read counts as the write that is known
// beside it.
func (fs *findings) add(key findingKey, f *Finding) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.total++
	written := key
	written.writes = true
	for _, k := range [...]findingKey{written, key} {
		if i, known := fs.index[k]; known {
			fs.list[i].Count++
			return false
		}
	}
	if len(fs.list) >= maxFindings {
		return false
	}
	if fs.index == nil {
		fs.index = make(map[findingKey]int)
	}
	f.Count = 1
	fs.index[key] = len(fs.list)
	fs.list = append(fs.list, *f)
	return true
}
