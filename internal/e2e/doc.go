// Package e2e is what tests of the whole stack share: they open a runtime as an
// application does, and look at what it shows. The tests are in the folders below,
// by subject, so that they run beside each other:
//
//	accounting        every layer's books against the device's
//	bugs              what is found of planted bugs, and what is not
//	jobs              work in jobs, and its memory
//	life              opening, choosing a device, closing, failing
//	measured          metrics, peaks, profiles
//	reports           incident files, dumps, and the policy that stops the process
//	shown             what operators look at
//	stackconformance  the conformance suite, on stacks of layers
//	traced            spans and log records
package e2e
