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
//     and only then uses it again: a layer closes its part in its notice. On the quick path it
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
// This is the protocol to which the layers are being moved. As yet package quick serves what no layer
// declines, or none that cannot be prepared, and the rest goes by [core.Resource]; Prepare is there, and Cure
// is not. A layer has three functions:
//
//   - Serve(op) does the layer's share under the stream's lock (of its lane), and calls the next
//     layer's. It calls no driver, launches nothing, tells nobody, takes no lock that is held over
//     such a call, and waits for nothing: it only tries the locks of the engine's stream and block. If it or a
//     layer below declines, it leaves all as it was: charges, counts and countdowns are undone or
//     not yet made, no generation is drawn, no free range was merged or split, the record is of no block.
//     Only what the operation itself keeps until it ends may stay: a charge, so that no layer below gets memory in a
//     Prepare for which there is no budget. Who declines says of the operation what it lacks, and does not say
//     why in words.
//   - Prepare(ctx, op) is called of the layer that declined, with no lock held. It gets what
//     Serve lacked and keeps it in the operation: a span, a stack, chosen red zones, a record, a
//     page, a part of the stream's state, or the lock of a busy stream waited for once. It may
//     block as the operation may. Its error ends the operation, unless it is a want of memory.
//   - Cure(ctx, op, err) is called for a want of memory, of one layer after the other, innermost first:
//     make room, reap and recall, wait for what is pending, evict quarantine. It holds no lock when
//     it is called, may take any, and reports whether Serve is worth another try. It keeps in the
//     operation how often it has helped, so that the chain ends. It neither counts nor logs refusals.
//
// The outermost layer tries Serve, Prepare and Serve again until the operation is served or refused. A
// refusal is explained once, by the outermost layer that has part in it, from the last error. What must be
// outside the lock and behind the success, such as arming red zones and telling a simulated
// device's oracle, is left in the operation and done when the lane is unlocked, before the block is
// returned.
//
// A [core.Resource] of somebody's own splits the path: the layer above it is the innermost one of the
// upper path, whose Serve lacks a block, and whose Prepare gets it by Allocate. That begins the lower path.
package path
