package fencepost

import (
	"context"

	"github.com/fencepost-gpu/fencepost/core"
)

// Stretch is a stretch of time that [Runtime.Measure] began. Its methods are safe for concurrent
// use and make no device call. Those of a nil Stretch return nothing.
type Stretch struct {
	soFar, end func() core.Peak
	forget     func() bool
}

// Measure begins a stretch of time, to ask how much memory the program needed in it: the most
// that was live at once, of the runtime and of each tag, and bytes times seconds. An earlier,
// larger peak does not hide it, as it does in [core.Stats].PeakRequested, and what was live
// before counts as long as it is. It ends with [Stretch.Stop], or with ctx. Of one job
// [Job.Account] says the same, and a [core.Account] of whatever is allocated for it.
//
//	stretch := rt.Measure(ctx)
//	train(rt)
//	fmt.Println(stretch.Stop().Requested)
//
// The figures are exact: an allocation counts from a moment between its call and its return, a
// free likewise. Stretches do not know of each other, and any number may be open. While none is,
// nothing is kept and nothing costs; while one is, all allocations and frees of all streams take
// one lock for some 100 ns. To begin one when none is open, Measure walks over the live blocks,
// and allocations and frees of a stream wait while it walks over that stream's. It does not wait
// for the device.
func (r *Runtime) Measure(ctx context.Context) *Stretch {
	if r == nil {
		return nil
	}
	if ctx == nil {
		ctx = context.Background()
	}
	soFar, end := r.backend.Measure()
	return &Stretch{soFar, end, context.AfterFunc(ctx, func() { end() })}
}

// Peak is what was live in the stretch until now, or until it ended.
func (s *Stretch) Peak() core.Peak {
	if s == nil {
		return core.Peak{}
	}
	return s.soFar()
}

// Stop ends the stretch and returns its peak; if it has ended, that until then.
func (s *Stretch) Stop() core.Peak {
	if s == nil {
		return core.Peak{}
	}
	s.forget()
	return s.end()
}
