// Package batch is how batches of small work, which one kernel launch does, travel
// between host and device: the regions of memory to fill, to compare or to sum up on
// the way there, and what the kernels found on the way back.
//
// # The protocol
//
// The kernels read tables of regions, and write results, in page-locked host memory,
// so nothing is copied synchronously and a batch costs no copy at all. Page-locked
// memory is dear to make, so it is used again. [Memory] is where it waits:
//
//   - [Memory.Stage] takes idle memory and writes the batch's [Table] there. The
//     caller enqueues a kernel over it, and [Memory.End] records an event behind that.
//   - A table that is released, or whose [Results] are discarded, stands in a line of
//     its stream until its event is completed. A stream's batches end in order, so
//     the head of a line speaks for all behind it: a device that is a thousand
//     batches behind is asked about a few and not about each, and a stalled stream
//     hides nothing of the others.
//   - Results that were read are known to be completed: their memory is idle at once.
//   - If the end of a batch could not be recorded, and the stream could not be
//     synchronised either, it is not known for how long the device uses the memory. It
//     is not used again.
//
// Regions so few that they fit a launch's arguments need none of this: see [FillFew].
package batch
