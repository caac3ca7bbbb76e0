package core

import "time"

// Health is whether the runtime can be used.
type Health struct {
	// OK is true while work is admitted.
	OK bool
	// Reason says why not.
	Reason string
	// Err is the sticky error that lost the device, if that is the reason.
	Err error
}

// Health reports whether the runtime admits work. It makes no device call.
func (r *Runtime) Health() Health {
	if f := r.poisoned.Load(); f != nil {
		return Health{Reason: "the device was lost in " + f.op + ": " + f.err.Error(), Err: f.err}
	}
	if r.closed.Load() {
		return Health{Reason: "closed"}
	}
	return Health{OK: true}
}

// ReportSticky tells the runtime of a sticky error that was seen outside its
// own calls, by a kernel launch or a synchronise. Other errors are ignored.
func (r *Runtime) ReportSticky(op string, err error) { _ = r.observe(op, err) }

func (r *Runtime) poison(op string, err error) {
	if !r.poisoned.CompareAndSwap(nil, &stickyFault{err: err, op: op}) {
		return
	}
	r.report(Finding{
		Kind: FindingStickyError, Err: err,
		Suspects: r.openLaunches(),
		Text:     "the device's context is lost: " + err.Error() + "; every call is refused from now on, restart the process to get the device back",
	})
}

// openLaunches lists what was in flight, newest first, for the report of a
// lost device: the faulting launch is among the blocks' last uses.
func (r *Runtime) openLaunches() []UseRecord {
	inspector, ok := Find[Inspector](r.resource)
	if !ok {
		return nil
	}
	seen := map[uint64]bool{}
	var uses []UseRecord
	inspector.Blocks(func(info BlockInfo) bool {
		for _, u := range info.Uses {
			if !seen[u.LaunchID] {
				seen[u.LaunchID] = true
				uses = append(uses, u)
			}
		}
		return len(uses) < 64
	})
	return uses
}

func (r *Runtime) report(f Finding) {
	if r.findings == nil {
		return
	}
	f.Source = "runtime"
	if f.Time.IsZero() {
		f.Time = time.Now()
	}
	r.findings.Report(f)
}
