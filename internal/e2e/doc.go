// Package e2e is what tests of the whole stack share: they open a runtime as an
// application does, and look at what it shows. The tests are in the folders below:
//
//	runtimes          opening, choosing a device, jobs, planted bugs, failing, closing
//	shown             what operators look at: metrics, profiles, spans, health, incident files
//	stackconformance  stacks of layers: the conformance suite, what is served at once against the
//	                  ordinary one, each layer's books against the device's under faults, and the table
//	                  of what happens when memory is short
//
// Tests that draw what they do log the seed; FENCEPOST_SEED=N repeats it.
package e2e
