package telemetry

import (
	"strconv"
	"time"
)

// WindowPeak is the most memory that a device had during a fixed window of time.
type WindowPeak struct {
	// Length is that of the window, in whole seconds.
	Length time.Duration
	// Live is the highest live bytes, Outstanding the highest of live, pending
	// and quarantined bytes together.
	Live, Outstanding uint64
}

var windowMetrics = []definition{
	{name: MetricMemoryWindowPeak, kind: gauge, labels: []string{"state", "window"}, help: "Highest live bytes, and highest outstanding ones (live, pending and quarantined together), padding included, in the last whole window of 15 or 60 seconds of the clock, or in the one under way if that is higher. Windows end on a second."},
}

func (s Source) collectWindows(out emitter) {
	for _, w := range s.Windows() {
		length := strconv.Itoa(int(w.Length/time.Second)) + "s"
		out.send(MetricMemoryWindowPeak, w.Live, "live", length)
		out.send(MetricMemoryWindowPeak, w.Outstanding, "outstanding", length)
	}
}
