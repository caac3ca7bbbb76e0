// Package workload is the work that Fencepost is shown and tested with: a
// radix sort, a hash join and a filter of many goroutines over several
// streams, laid out so that almost every launch uses a block that another
// stream wrote last, with each result compared to a plain computation on the
// CPU.
//
// The host side is the same for every driver. The kernels are in workload.cu
// for a GPU and in simkernels.go for the simulated device; both must give the
// same results, and wrong values but no fault where a fence is missing.
package workload
