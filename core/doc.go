// Package core is the vocabulary and the contract of Fencepost: identities
// of streams, blocks and launches, typed errors, the [Resource] interface
// that every allocator and decorator satisfies, and the [Runtime] that
// services call.
//
// # The contract in short
//
// A [Resource] hands out device memory in stream order. A [Block] is named by
// its [BlockID], whose generation is unique in the process, so a stale handle
// is always told apart from the block that later sits at the same address.
//
// Every launch declares the blocks that it reads and writes. PrepareUse opens
// an intent on all of them and queues exactly the cross-stream waits that the
// launch needs; FinishUse records the launch so that later uses, and the free,
// can wait for it. [Runtime.Launch] does both around one function and cannot
// be misused; [LaunchRecorder] is the two-phase form.
//
// Decorators wrap a Resource and are Resources themselves. They keep their
// upstream in a named field and spell out every method, so that a method
// added here must be decided on in each of them.
//
// The package imports the standard library only.
package core
