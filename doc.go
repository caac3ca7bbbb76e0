// Package fencepost is an observability-first runtime for GPU memory.
//
// [Open] composes the default stack around a device: stream-ordered
// allocation with fenced uses, a log, a budget, a debug guard and telemetry.
// The runtime that it returns allocates blocks, fences launches across
// streams, explains refusals, and reports the memory bugs it sees.
//
//	rt, err := fencepost.Open(ctx, fencepost.Config{})
//	module, err := rt.Load("sort", ptx)
//	sort, err := module.Kernel("sort")
//	err = rt.Do(ctx, "sort", func(j *fencepost.Job) error {
//		keys, err := fencepost.Upload(j, input)
//		err = j.Launch(sort, cuda.Blocks1D(len(input), 256), fencepost.ReadWrites(keys), fencepost.Value(uint32(len(input))))
//		output, err = fencepost.Download(j, keys)
//		return err
//	})
//
// [Runtime.Do] is the straight way: a stream, memory that is freed whatever
// happens, and launches that say what they read and write. Under it, and beside it,
// are stream leases ([Runtime.Streams]), typed memory ([Runtime.Memory]), launches that
// other code enqueues ([Runtime.Launch]), and the stack itself ([Runtime.Core]).
//
// [NewHandler] serves what operators look at: metrics, health, profile, history
// and a live view.
//
// Without a GPU everything runs on the simulated device of package cuda/sim.
// The package names the things; packages core, cuda, decorators/... and
// telemetry hold them.
package fencepost
