// Package gputest holds the tests that need a GPU and no particular package:
// the suites that the simulated device runs all the time, on hardware, and what
// only hardware can answer. scripts/gpu-test takes them to a machine that has
// one; see dev/README-gpu.md.
//
// # Modes
//
// Variables of the environment say how the tests run:
//
//   - FENCEPOST_GPU_DRY_RUN=1 opens the simulated device in the GPU's place. The
//     package does that with itself wherever it is tested, so that these tests
//     do not rot where there is no GPU. What the device does there is no proof
//     of anything.
//   - FENCEPOST_GPU_RESOURCE=async puts the driver's pool in the place of the runtime's own,
//     wherever a test does not choose a backend itself.
//   - FENCEPOST_SANITIZER=1 is for compute-sanitizer, which makes everything ten
//     times slower or worse and reports every failed call: sizes are small, and
//     what provokes errors of the driver or reaches memory that it must not is
//     left out. What is left must be clean. With FENCEPOST_SANITIZER=errors, for
//     a sanitizer that does not report errors, the former is not left out.
//   - FENCEPOST_PLANT=uaf, oob or illegal runs no test: it plants one bug, for
//     the sanitizer or for a test to see.
//   - CUPTI_WITNESS=FILE compares the spans of launches with CUPTI's record, which
//     cupti/witness.c writes into FILE: its comment says how it is built and loaded.
//   - FENCEPOST_SEED=N repeats random programs; failures print it.
//
// # What coretest leaves out
//
// [coretest.Run] leaves out cases that mean nothing for a subject, and logs
// which. Which those are depends on the subject and not on the device, with one
// difference: the device's memory and the budget are the GPU's, so blocks of a
// gibibyte are tried here under every guard, and on the simulated device only
// where no guard compares every byte. Of the stream-ordered backend the cases
// about claims that are granted are left out; of the direct one also all that
// need use tracking or stream order, and so all that stall a stream; of stacks
// the ends that race, which are for backends, and with a guard that has a
// quarantine the failing free, because a block there is freed later.
//
// A stalled stream is an operation that does not end on the simulated device,
// and here a kernel that polls a word of page-locked memory, for ten seconds at
// most. So a case in which the driver makes one stream wait for another without
// having been asked ends late here, and passes if the bytes are right.
//
// [coretest.Run]: https://pkg.go.dev/github.com/fencepost-gpu/fencepost/core/coretest#Run
package gputest
