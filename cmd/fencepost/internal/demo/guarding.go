package demo

import "time"

// Guarding is what the debug guard did. Sizes are bytes.
type Guarding struct {
	// Mode is the guard's at the end of the run.
	Mode string `json:"mode"`
	// Guarded counts blocks between red zones, Unguarded those that had to do
	// without for want of memory. Verified counts comparisons of a block that
	// the device did, Unchecked those left out.
	Guarded   uint64 `json:"guarded"`
	Unguarded uint64 `json:"unguarded"`
	Verified  uint64 `json:"verified"`
	Unchecked uint64 `json:"unchecked"`
	// QuarantinePeak is the most that quarantine was seen to hold, which was
	// looked at a few dozen times a second; Evicted counts the blocks that it
	// let go.
	QuarantinePeak uint64 `json:"quarantine_peak_bytes"`
	Evicted        uint64 `json:"evicted"`
	// Relieved counts refusals that giving up quarantine cured.
	Relieved uint64 `json:"relieved"`
	// Findings counts what the guard itself found.
	Findings uint64 `json:"findings"`
}

// guarding reads the guard's numbers.
func (d *Demo) guarding() Guarding {
	g := d.rt.Guard().GuardStats()
	return Guarding{Mode: g.Mode.String(), Guarded: g.Guarded, Unguarded: g.Unguarded, Verified: g.Verified, Unchecked: g.Unchecked,
		QuarantinePeak: d.quarantine, Evicted: g.Evicted,
		Relieved: g.Relieved, Findings: g.Findings}
}

// watchQuarantine notes the most that is seen in quarantine until stop is
// called.
func (d *Demo) watchQuarantine() (stop func()) {
	done, stopped := make(chan struct{}), make(chan struct{})
	tick := time.NewTicker(20 * time.Millisecond)
	go func() {
		defer close(stopped)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				d.quarantine = max(d.quarantine, d.rt.Stats().Quarantined.Bytes)
			}
		}
	}()
	return func() {
		close(done)
		<-stopped
	}
}
