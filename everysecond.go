package fencepost

import (
	"context"
	"time"

	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

// tagShare is the part of the time that looking at all tags may take: a program
// with a million of them at a time is looked at less often.
const tagShare = 50

// keepMetrics keeps what metrics need to know between scrapes: the peaks of windows
// of time, and the tags that have series.
func (r *Runtime) keepMetrics() {
	r.peaks = cuda.NewPeakWindows(r.holder, time.Now())
	var next time.Time
	r.onClose(everySecond(func(now time.Time) {
		r.peaks.Turn(now)
		if now.Before(next) {
			return
		}
		r.lookAtTags(now)
		next = now.Add(tagShare * time.Since(now))
	}))
}

func (r *Runtime) lookAtTags(now time.Time) {
	r.budget.RenewTags() // before the look: what is used after it counts for the next
	r.tags.Look(now, r.budget.Holders())
}

// everySecond calls f when a second of the clock begins, until the function that
// it returns is called, which waits for a call under way. f must not wait for the
// device.
func everySecond(f func(now time.Time)) (end func(context.Context) error) {
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		timer := time.NewTimer(toNextSecond(time.Now()))
		defer timer.Stop()
		for {
			select {
			case <-stop:
				return
			case <-timer.C:
			}
			f(time.Now())
			timer.Reset(toNextSecond(time.Now()))
		}
	}()
	return func(context.Context) error {
		close(stop)
		<-ended
		return nil
	}
}

func toNextSecond(now time.Time) time.Duration {
	return time.Second - time.Duration(now.Nanosecond())
}

func (r *Runtime) windowPeaks() (windows []telemetry.WindowPeak) {
	if r.closed.Load() { // nobody else does it any more
		r.peaks.Turn(time.Now())
	}
	for _, p := range r.peaks.Peaks() {
		windows = append(windows, telemetry.WindowPeak{Length: p.Length, Live: p.Live, Outstanding: p.Outstanding})
	}
	return windows
}
