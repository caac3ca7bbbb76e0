// Package fence is the engine: it decides which stream waits for which work, with as
// few waits as will do. It knows of streams, points of their order, and accesses of
// blocks; not of memory, and not of who owns a block.
//
// # The claim
//
// The queued waits order exactly the pairs of operations that stream order and declared
// conflicts demand, transitively: no fewer and no more. No queued wait can be taken away. What that
// means for callers, and why the rules below give it, is in docs/memory-model.md;
// dev/proof checks it on this code.
//
// # The rules
//
// Each [Stream] keeps a vector clock: for every other stream the newest point there
// that it is already ordered after, transitively. Each block keeps a [History] of its
// outstanding accesses, which no other of them covers: at most one write and one read
// of each stream.
//
//  1. A launch is announced on all its blocks. Of two conflicting launches on two
//     streams one finds the other there: open, and it is refused; or placed, and its
//     access becomes a dependency.
//  2. A dependency is waited for unless the stream's clock covers it, the host knows it
//     to be completed, a newer one of its stream is waited for, or the clock of another
//     dependency covers it ([Plan]).
//  3. The end of a launch takes the next number of its stream's order, and a copy of
//     the clock: its [Point]. The next look at a block drops the accesses that a later
//     point covers.
//  4. Allocations that follow each other share one ready point, whose record is deferred
//     until something needs it (deferred.go).
//  5. A free makes no stream wait. What remains of the block's accesses, once those are left out that
//     its stream is ordered after, is the [Frontier] of its memory: the next use comes after that.
//
// The files are in two halves. Clock, access, history, frontier and plan decide, with the steps of a
// plan on its stream: they reach the driver only by Stream.wait, and where a point is
// released. Point, pointlist, stream, order, flights, counts, deferred (which also records the
// deferred points of a plan, flushOthers), launch, giveup and capture keep the locks and call
// the driver through [Port], which port.go lists. Two waits are not decided here: that of a
// stream that takes memory which another freed (place.go serves it, cuda/makeroom.go asks),
// and that between devices (cuda/copy.go).
//
// # The states of a point
//
// Nothing but this table moves a point. Completion is no state: it is known by stream and
// sequence number, so that it holds for every later user of the point.
//
//	call                           announced  watched          withdrawn  deferred   recorded   synthetic
//	waitEnded                      watched    watched          ended      ended      ended      ended
//	watch                          watched    watched          ended      ended      ended      ended
//	End after Finish               recorded   recorded, told   -          -          -          -
//	End after FinishUnrecorded     synthetic  synthetic, told  -          -          -          -
//	End after Withdraw             withdrawn  withdrawn, told  -          -          -          -
//	recordDeferred                 announced  watched          withdrawn  recorded   recorded   synthetic
//	Flush                          -          -                -          recorded   recorded   -
//	GiveUp                         -          -                -          recorded   recorded   -
//	GiveUp with a synchronise      -          -                -          synthetic  recorded   -
//	LetGo                          -          -                -          synthetic  recorded   -
//	DropFinalEvent                 -          -                -          -          synthetic  synthetic
//
// "Ended" is the answer, and the state stays; "told": the call answers that the launch was
// watched, and a caller that waits for its channel is woken; a dash: no caller does that. Flush,
// GiveUp and LetGo move the ready point of their stream, if anybody can need it; one that
// is not needed stays deferred and goes back to the list. The last one puts another point in
// the place of the final point.
//
// A point from the list begins as announced (Announce), deferred (PointForAllocation) or
// recorded (Record), and goes back when no reference is left, in whatever state. The points
// that LetGo, DropFinalEvent and GiveUp with a synchronise make are synthetic from the
// beginning and of no list. So a recorded final point gives way to a synthetic one, and a
// launch whose event the driver refuses goes from announced or watched to synthetic, behind
// a synchronise. states_test.go holds every cell.
//
// # Memory order
//
// Two steps are atomic under a stream's own lock: a wait is queued and the clock
// joined; a number is taken, the event recorded and the clock copied. A deferred record is
// made under the point's own lock and the stream's gate, because the stream's lock may be
// held over an allocation for as long as the driver takes. A point's place (number and
// clock) is written before its state says that it is placed, and read after that was
// seen; it does not change while anybody refers to the point. A live block's history is
// guarded by its owner's lock, and no block is locked while the driver is called; that of a
// retired block belongs to whichever goroutine queues its free. Locks are taken in the order
// block, point; and stream, point, gate. A block and a stream are never locked together; the
// lock of a list of points and that of the order are taken last and hold nothing up.
// dev/proof.md has the order of all locks of the product, which a test demands.
package fence
