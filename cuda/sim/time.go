package sim

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// What things take where time is virtual: a call the host, and the device a launch of a kernel
// that does not say, any other operation, and each byte of it.
const (
	callTakes   = time.Microsecond
	kernelTakes = 10 * time.Microsecond
	copyTakes   = 2 * time.Microsecond
	bytesInNS   = 16
)

// moment is when the device has come to a record, as the time since it was opened; zero before.
type moment struct{ at atomic.Int64 }

func (m *moment) note(at time.Duration) { m.at.Store(int64(at)) }

func (m *moment) time() time.Duration { return time.Duration(m.at.Load()) }

func (d *Device) sinceOpen() time.Duration { return time.Since(d.opened) }

// callTime is the host's virtual time after one more call; the device's lock is held.
func (d *Device) callTime() time.Duration {
	if d.chooser == nil {
		return 0
	}
	d.hostTime += callTakes
	return d.hostTime
}

// sawDone says that the host has learned that r is done; the device's lock is held.
func (d *Device) sawDone(r record) {
	switch {
	case d.chooser == nil || r.s == nil || r.abroad != nil:
	case r.moment != nil:
		d.hostTime = max(d.hostTime, r.moment.time())
	default: // of a stream that is waited for
		d.hostTime = max(d.hostTime, r.s.at)
	}
}

// HostTime is the host's virtual time since the device was opened if its schedule is seeded.
func (d *Device) HostTime() (time.Duration, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.hostTime, d.chooser != nil
}

// spend moves the stream's virtual time to the end of o, which was run.
func (s *stream) spend(o *op) {
	s.at = max(s.at, o.queued)
	switch o.kind {
	case opMark:
	case opWait:
		if m := o.waitFor.moment; m != nil {
			s.at = max(s.at, m.time())
		}
	case opLaunch:
		s.at += o.exec.takes
	default:
		s.at += copyTakes + time.Duration(o.exec.touches[0].Bytes/bytesInNS)
	}
	if o.moment != nil {
		o.moment.note(s.at)
	}
}

// takes is how long a launch takes where time is virtual.
func (k *Kernel) takes(args Args) time.Duration {
	if k.Takes == nil {
		return kernelTakes
	}
	return max(0, k.Takes(args))
}

// TimingEventCreate makes an event with timing. It does not block.
func (d *Device) TimingEventCreate() (driver.Event, error) {
	return d.makeEvent(mTimingEventCreate, true)
}

// EventElapsed is how long after the current record of from the device came to that of
// to, to the nanosecond. It does not block.
func (d *Device) EventElapsed(from, to driver.Event) (time.Duration, error) {
	m := mEventElapsed
	if err := d.begin(m); err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	var at [2]time.Duration
	for i, h := range [...]driver.Event{from, to} {
		e, err := d.events.named(m, h)
		if err != nil {
			return 0, err
		}
		if err := e.prohibited(m); err != nil {
			return 0, err
		}
		switch r := e.current; {
		case !e.timing || r.moment == nil:
			return 0, fault(m, driver.InvalidHandle, fmt.Sprintf("event %#x has no time: make it by TimingEventCreate, and record it", uint64(h)))
		case !r.done():
			return 0, fault(m, driver.NotReady, "the record is not done")
		default:
			at[i] = r.moment.time()
		}
	}
	return at[1] - at[0], nil
}
