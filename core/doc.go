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
// leave an intent open; [LaunchRecorder] is the two-phase form.
//
// # What is where
//
// An application needs
//
//   - [Runtime]: what it holds of a device; [AnyRuntime]: what it and what
//     fencepost.Open returns implement, for functions that take either
//   - [Request], [Block], [BlockID], [Tag], [StreamID]: what is allocated, for whom, and where
//   - [Use], [Access], [UseRequest], [Ticket]: what a launch declares, and the proof that it did;
//     [LaunchRecorder], [Tracked]: the two-phase form
//   - [Claim]: bytes that a budget sets aside
//   - [Account], [Peak], [JobAccount]: the memory that a job or a stretch of time needs at most
//   - [Finding], [UseRecord], [Stack]: a memory bug, with who is suspected
//   - [Health], [Stats], [Leftover]: how the runtime is, what it counted, what it had left at its end
//   - [OutOfBudgetError], [UseAfterFreeError], [StreamMisuseError], [OutOfBoundsError],
//     [InvalidRequestError], [DriverError]: what a call may fail with; each matches one of the Err
//     variables by errors.Is
//
// Authors of layers and backends also need
//
//   - [Resource], [Layer], [With], [Chain], [Base]: the contract, and how a stack is put together;
//     [Unsupported], [StreamMisuseError]: how a backend refuses what it lacks; [Features]: how it says so
//   - [OpenIntent], [Intent], [PreparedUse], [Waited], [WaitRef]: a launch between PrepareUse and its end
//   - [Inspector], [BlockInfo], [Listener]: what a stack knows of its blocks, and who hears of their end
//   - [SpanRef], [SpanContext], [SpanOf], [WithSpan]: spans, without a tracing library
//   - package names: the stable names of findings, health and log fields; package oplog: what logs and
//     traces are told of operations; package readings: what metrics read of streams and pools; package
//     deviceops: what a guard needs of a device; package coretest: the conformance suite
//
// # Decorators
//
// Decorators wrap a Resource and are Resources themselves. They keep their
// upstream in a named field and spell out every method, so that a method
// added here must be decided on in each of them.
//
// The package imports the standard library and package names only.
package core
