// Package overlap checks the fences of the instrumented packages (cuda and what it imports) where
// calls overlap: a few goroutines are inside calls of the production code at the same time, and
// every choice of who goes on at a lock, an atomic or a driver call is explored, with
// at most so many preemptions (package interleave). The oracle of the other checks
// judges what arrived at the device.
//
// It needs a build in which the instrumented packages take their locks and atomics from interleave:
// see package overlay.
//
// # What counts
//
// A launch is prepared when PrepareUse has returned, and finished when FinishUse
// is called. What is refused because of a call that overlaps is left out: a
// launch for a conflicting one that is open, or any use for a free; the program
// must have such a call. What came in between is not held against a call, as
// oracle/overlap.go says, and a launch's end is where its event is recorded, for
// those that must not come after more than that.
//
// Over the runtime's own pool an allocation lies on its stream where it gets its memory, and a free
// where that becomes free: package overlay adds calls that say so. Waits and orders too many are
// not judged there, because which of them the memory demands is judged where calls follow each
// other; nor where a stream was given up, whose frees come behind all of it.
//
// Never excused are: an order that is
// missing, a deadlock, a panic, a count below zero, an event used or destroyed
// when it was gone, a stream named after it was given up, a page unmapped before the device has
// done what uses it, a block, a page or an event left over.
package overlap
