package core

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost-gpu/fencepost/core/names"
)

// FindingKind is the stable name of a kind of memory bug: what alerts, metrics and
// incident files match. The kinds, constants of package core/names and explained in
// docs/guard.md, are
//
//	uaf-write, uaf-read        an access after the free
//	oob-write, oob-read        a write behind a block, or a read there
//	underflow                  an access before a block
//	double-free, foreign-free  a free of freed memory, or of what was never allocated here
//	stale-handle               a use of a block that was freed
//	missing-fence              an access that nothing orders behind a conflicting one
//	use-before-alloc-ready     an access that nothing orders behind the allocation
//	undeclared-access          an access that the launch did not declare
//	uninitialized-read         a declared read before any declared write
//	reuse-race                 a use of freed memory that already belongs to another block
//	sealed-write               a change of a block that was declared read-only
//	stray-write                a change of memory that was not allocated
//	leak                       a block that was never given back
//	oom                        no memory on the device for what the budget admitted
//	sticky-error               an error that lost the device
//	illegal-access             an access that lost the device, of which the GPU's core dump tells
//	dropped-recorder           a launch recorder without an end
//	accounting                 books of the runtime that are wrong
type FindingKind string

// Finding is one memory bug that was seen.
type Finding struct {
	Kind FindingKind
	// Source is who saw it: "debugguard", "runtime", "slice" (typed memory),
	// "sim-oracle" or "gpu-core-dump".
	Source string
	Time   time.Time
	// Victim is the block that was harmed, as its owner knew it; its
	// generation is zero if there is none.
	Victim Block
	// Offset is that of the first bad byte relative to Victim.ID.Ptr, and
	// BadBytes how many differ; Expected and Seen are the first one's values.
	// They are meaningful if BadBytes is not zero.
	Offset         int64
	BadBytes       uint64
	Expected, Seen byte
	// Allocated and Freed are when the victim's owner allocated it and gave it back, on the
	// clock of the uses; zero if that is not known. The layers below a guard see the free
	// later, when the guard passes it on.
	Allocated, Freed time.Time
	// AllocStack and FreeStack say where the victim was allocated and freed,
	// as far as stacks were kept.
	AllocStack, FreeStack Stack
	// CallStack says where the call was made that the finding is about, such as
	// the second free, if it was kept.
	CallStack Stack
	// Uses are the victim's last declared uses, newest first, and
	// OlderUses how many more there were.
	Uses      []UseRecord
	OlderUses uint64
	// Unproven says that there need be no bug: the runtime knows of no order, and
	// the program may have made one that the runtime cannot see. Such a finding
	// stops no process and is no ill health.
	Unproven bool
	// Suspects are the launches between the last good check and the bad one,
	// likeliest first, or those in flight on a device that was lost: those that the driver's
	// error names, then the newest of each stream and so on, and the runtime's copies last. MoreSuspects
	// is set if there may be others that are not named.
	Suspects     []UseRecord
	MoreSuspects bool
	// Unranked is set if none of the suspects declared the victim or was given a pointer
	// into it. They only ran meanwhile and are in order of time: it was undeclared work, of
	// one of them or another, or code that does not go through the runtime.
	Unranked bool
	// Origin is the span in force at the victim's free, or else at its allocation, if
	// that was kept: where the finding is told if it is not known in which request the
	// suspects were launched. It is zero of what a call itself was found to do.
	Origin SpanContext
	// Span is the exported span that tells of the finding, the first if there are
	// several; zero if there is none. A sink that makes spans sets it. Alone is set
	// if the rest of its trace is not exported: see [SpanRef.Extent].
	Span  SpanRef
	Alone bool
	// Text says in one sentence what happened.
	Text string
	// Incident is the path of the file in which the finding is, or soon will be,
	// with what surrounded it; of a repeat that gets no file of its own it is the
	// last file of its sort. Empty if there is none.
	Incident string
	// Err is the error that the caller got for it, or the typed error of the
	// kind where there was no call to return it from; nil if neither fits.
	Err error
}

// UseRecord is one declared use of a block, kept for findings.
type UseRecord struct {
	// LaunchID is the number of the launch, Launch its name.
	LaunchID uint64
	Launch   string
	Stream   StreamID
	// Access is zero for a launch as a whole.
	Access Access
	Span   SpanRef
	// Caller is the span in which the launch was prepared, or its own, exported or
	// not: where a finding about it is told if Span is zero. It is zero if it was not
	// kept, and where the call was refused for the finding, because its error tells
	// of it there.
	Caller SpanContext
	// Time is when the launch was prepared, zero if that was not kept.
	Time time.Time
	// Tags are those of the launch's blocks, the first few in no order, where
	// they are known; the rest is empty.
	Tags [4]Tag
}

// FirstTags sets tags to those of the intent's blocks as [UseRecord] keeps them: each
// once, and no more than the first few. It is for the one who ends the launch.
func (in *Intent) FirstTags(tags *[4]Tag) {
	if !in.tagged {
		in.findTags()
		in.tagged = true
	}
	*tags = in.tags
}

func (in *Intent) findTags() {
	tags, n := &in.tags, 0
	*tags = [4]Tag{}
	for i := range in.Uses {
		tag := in.Uses[i].Tag
		if i > 0 && tag == in.Uses[i-1].Tag || n > 0 && slices.Contains(tags[:n], tag) { // most launches have blocks of one tag
			continue
		}
		tags[n] = tag
		if n++; n == len(tags) {
			return
		}
	}
}

// String is the finding's text with kind, victim and stacks, on several
// lines.
func (f Finding) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", f.Kind, f.Text)
	if f.Unproven {
		why := "the order may have been made where the runtime does not see it"
		if f.Kind == names.FindingUndeclaredAccess {
			why = "the number need be no address"
		}
		b.WriteString("\n  unproven: " + why)
	}
	if f.Victim.ID.Generation != 0 {
		fmt.Fprintf(&b, "\n  victim: tag %q generation %s, %d bytes at %#x", f.Victim.Tag, f.Victim.ID.Generation, f.Victim.Requested, f.Victim.ID.Ptr)
	}
	for i, u := range f.Suspects {
		fmt.Fprintf(&b, "\n  %s: %v", f.Suspicion(i), u)
	}
	for _, u := range f.Uses {
		fmt.Fprintf(&b, "\n  used by: %v", u)
	}
	for _, at := range []struct {
		what  string
		stack Stack
	}{{"allocated at", f.AllocStack}, {"freed at", f.FreeStack}, {"called at", f.CallStack}} {
		if len(at.stack) > 0 {
			fmt.Fprintf(&b, "\n  %s:\n    %s", at.what, strings.Join(at.stack.Lines(), "\n    "))
		}
	}
	if f.Incident != "" {
		fmt.Fprintf(&b, "\n  incident: %s", f.Incident)
	}
	return b.String()
}

// Suspicion is what f says of Suspects[i]: "suspect 1 of 8", "suspect 1 of 8 or
// more", "in flight" on a device that was lost, "ran meanwhile" where none is likelier than
// another, and "culprit" only of the one launch that can have done it.
func (f *Finding) Suspicion(i int) string {
	switch {
	case f.Kind == names.FindingStickyError:
		return "in flight"
	case f.Unranked:
		return "ran meanwhile"
	case f.MoreSuspects:
		return fmt.Sprintf("suspect %d of %d or more", i+1, len(f.Suspects))
	case len(f.Suspects) == 1:
		return "culprit"
	}
	return fmt.Sprintf("suspect %d of %d", i+1, len(f.Suspects))
}

// launchName is a launch as findings call it. Its number is left out where it is
// not known, as of what the simulated device's oracle saw.
func launchName(id uint64, name string) string {
	if id == 0 {
		return fmt.Sprintf("launch %q", name)
	}
	return fmt.Sprintf("launch %d %q", id, name)
}

// String is `launch 7 "sort" on stream 2 (write) of "rows", span 4bf9...`; what
// is not known is left out.
func (u UseRecord) String() string {
	text := fmt.Sprintf("%s on stream %v", launchName(u.LaunchID, u.Launch), u.Stream)
	if u.Access != 0 {
		text += fmt.Sprintf(" (%v)", u.Access)
	}
	for i, tag := range u.Tags {
		if tag != "" {
			text += map[bool]string{true: " of ", false: ", "}[i == 0] + strconv.Quote(string(tag))
		}
	}
	if u.Span != (SpanRef{}) {
		text += fmt.Sprintf(", span %x of trace %x", u.Span.SpanID, u.Span.TraceID)
	}
	return text
}
