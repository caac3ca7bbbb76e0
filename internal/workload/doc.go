// Package workload is the work that Fencepost is shown and tested with: a
// radix sort and a hash join of many goroutines over several streams, laid
// out so that almost every launch uses a block that another stream wrote
// last, with each result compared to a plain computation on the CPU.
//
// The host side is the same for every driver; the kernels of the simulated
// device are in simkernels.go.
package workload
