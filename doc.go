// Package fencepost is an observability-first runtime for GPU memory.
//
// [Open] composes the default stack around a device: stream-ordered
// allocation with fenced uses, a log, a budget, a debug guard and telemetry.
// The runtime that it returns allocates blocks, fences launches across
// streams, explains refusals, and reports the memory bugs it sees.
//
//	rt, err := fencepost.Open(ctx, fencepost.Config{})
//	stream, err := rt.Streams().Acquire(ctx, "request")
//	keys, err := cuda.Alloc[uint32](ctx, rt.Memory(), 1<<20, cuda.AllocOptions{Stream: stream.ID(), Tag: "sort.keys"})
//	err = rt.Launch(ctx, stream.ID(), []core.Use{keys.Use(core.Write)}, func(ctx context.Context) error {
//		return enqueueKernel(stream.Handle(), keys.Ptr())
//	})
//
// [NewHandler] serves what operators look at: metrics, health, profile, history
// and a live view.
//
// Without a GPU everything runs on the simulated device of package cuda/sim.
// The package names the things; packages core, cuda, decorators/... and
// telemetry hold them.
package fencepost
