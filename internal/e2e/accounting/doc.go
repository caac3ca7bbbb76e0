// Package accounting holds the tests that compare what every layer says it
// holds with what the simulated device says it has handed out, while the demo's
// work runs and the device misbehaves in each way that it can.
//
// The books are compared at quiet points. Settled: no call is under way and the
// device has passed what was queued; a guard's quarantine is still full.
// Drained: quarantine has been given up too. Between the two nothing of the
// runtime's changes by itself.
//
// The order of the faults, and the work, are drawn from a seed that every
// failure shows; FENCEPOST_SEED=N repeats it.
package accounting
