// Package path is what all layers of a stack know together of a block: its one record.
//
// # The record
//
// A block has one [Record], in one table. It has a part for each layer, of a type that the layer
// owns ([Part]); the backend's is the rest of its own record, in which this one is embedded. A
// layer finds its part by the record and needs no map and no table of its own.
//
//   - The backend owns the table. Where a layer lies over a [core.Resource] that is none of this
//     module's, or that lies beside the path, the stack is split there: the first layer that asks
//     for records above it gets a table of its own, and the layers above share that ([Join]).
//   - Records are used again. A reader that has found one may come to another block's: a part
//     has the generation that it is of, in a word of its own, and who reads a part compares that
//     under the lock of the part's layer before it believes the rest. A part is filled first and gets its
//     generation last, and loses it first.
//   - The owner enters a record before the block is returned to the layer above. It takes the record out
//     of the table when the block is released, then tells the layers ([Listener]) and hands them the record,
//     and only then uses it again: a layer closes its part in its notice. Of a free that is served at once it
//     closes it under the lock of the stream's lane, before that is unlocked.
//   - A part may be of no block while its record is: the block was allocated around the layer, or the
//     layer's own books have ended. What a layer keeps for longer than the backend's block lives, such as
//     tombstones and comparisons that are under way, is a copy or is kept elsewhere.
//
// [Records.Load] takes no lock. [Records.Find] and [Records.Each] take the locks of lanes, one after
// the other: they are not called with the lock of a lane or one that is taken under it.
//
// # One way
//
// An allocation or a free is an [Op] that goes down the layers under the lock of its stream's [Lane]. What a
// layer lacks to serve it, that layer gets with no lock held, and the same operation is tried again. A [Layer] has
// these functions:
//
//   - Allocate and Deallocate do the layer's share under the lane's lock and call the next layer's. They
//     call no driver and no code of the user's, take no lock that is held over such a call, and wait for
//     nothing: they only try the locks of the engine's stream and block. A layer that declines, or is declined by a
//     layer beneath, leaves all as it was, but for what the operation keeps ([Op.Keep]): a charge, so that no layer
//     beneath gets memory for which there is no budget; a block that was retired.
//   - Prepare is called of the layer that declined. It gets what the layer lacked: a captured stack, a
//     grant, a page, the lock of a busy stream waited for once. It may do all of the layer's part and of those beneath
//     ([Op.Got]): a backend makes a block with calls of the driver, a guard one between red zones. It may
//     block as the operation may. Its error ends the operation, unless it is a want of memory that a cure helps.
//   - Yield is called of the layers that were asked, the innermost first, before the stack's [cures.Room] looks
//     for memory. The layer gives its charge back meanwhile.
//   - Settle is called when the operation has ended: with an error in all layers that were asked, and otherwise
//     in those that wished so. A layer gives back what it keeps, explains the error, once, and does
//     what must not be done under the lock: it writes to sinks, tells listeners. Code of the user's that panics
//     ends the operation with [ErrAbandoned], and no block stays that its caller does not get.
//
// A backend serves at once ([Op.AtOnce]) what needs no call of the driver. Of a free that it serves at once no listener
// has heard: each layer closes its part of the record under the lane's lock, and a layer that keeps listeners of its own tells those
// of them who are no layers. So a free that does not go through all layers over a backend is never served at
// once. Where a layer would have to look up what the lane's lock does not guard, it has the backend not serve at once
// ([Op.NotAtOnce]), and hears by notice.
//
// dev/proof.md has the place of a lane among the locks. Three rules follow from it:
//   - A goroutine that holds a lane only tries the lock of a stream or of a block. It waits for
//     neither.
//   - Few locks come below a lane. A goroutine that holds one of those takes no lane.
//   - An operation holds one lane. A holder of recalling takes the lanes of its group in their
//     order.
//
// # Ordinary operations
//
// In an ordinary operation no layer has anything to decide. A stream keeps the blocks that are
// freed on it ([Keeping]). Its next allocation of the same size and tag gets such a block, with a
// new generation. The layers only write down what happened ([Ordinary]). No layer calls the next
// one.
//
// The books of live blocks are exact at each step. But a kept block has its memory, and its charge
// stands, as if it were live. [Lane.Lock] undoes that first: it settles the lane. Each kept block
// is let go, and its bytes are free everywhere. Only an operation locks a lane without that. So a
// reader, a recall of credit, a takeover of pages and a search for memory find what they would find
// if no block were kept. An operation that lacks bytes settles its own lane and tries again
// ([Lane.SettleNow]).
//
// An operation is ordinary if all of this holds:
//   - Its path is the topmost one over the backend, and all layers have a share.
//   - The caller's context names no sampled span.
//   - The layers' rules are those that the lane knows: a layer that changes its own calls [Path.Altered].
//   - No more bytes were allocated since than each layer expects ([Ordinary.Expects]).
//
// # Who takes part
//
// A backend makes a Path with [New], and each layer above it one with [Path.Extend], over that of its upstream ([Over]).
// A [core.Resource] that has no path of its own, such as a user's decorator, splits the path. Its
// calls are the innermost layer of the path above, whose Prepare makes them, and so begin the path
// beneath. Both paths share the room of cures. The lower one looks for memory, and marks the error
// of a request that it refuses, so that the upper one does not look again.
package path
