package fencepost

import (
	"slices"
	"sync"

	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/ring"
	"github.com/fencepost-gpu/fencepost/telemetry/explain"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

// deviceWork is what is known of the device's part of launches: it counts and logs it, and keeps the newest.
type deviceWork struct {
	times metrics.DeviceTimes
	jobs  metrics.Jobs
	log   *logging.Resource // which is made after the streams

	mu   sync.Mutex
	most int
	kept ring.Ring[oplog.DeviceWork]
}

// historyPerWork is how many records of the history there may be for each launch whose device times are kept.
const historyPerWork = 4

func (d *deviceWork) Lost(launches int) { d.times.Lost(launches) }

func (d *deviceWork) Done(w *oplog.DeviceWork) {
	d.times.Done(w)
	d.jobs.Done(w)
	d.log.Done(w)
	d.mu.Lock()
	defer d.mu.Unlock()
	place, _ := d.kept.Next(d.most)
	w.CopyTo(place)
}

// events are the records of what is kept, oldest first.
func (d *deviceWork) events(ordinal int) []oplog.Event {
	d.mu.Lock()
	defer d.mu.Unlock()
	var events []oplog.Event
	for w := range d.kept.Newest() {
		events = append(events, w.Event(ordinal))
	}
	slices.Reverse(events)
	return events
}

// historyRecords is the history: what is in memory of operations, and after that of what the device did and of jobs.
func (r *Runtime) historyRecords() logging.Records {
	records := r.ring.Snapshot()
	for _, e := range append(r.deviceWork.events(r.Ordinal()), r.jobHistory.events(r.Ordinal())...) {
		records = append(records, logging.Record{Event: e})
	}
	return records
}

// Explain says what a request waited for on the device, by the number of its trace, which must be sampled: which launch of
// which other request, over which block, for how long, and why; see package [explain]. What is known goes back a
// quarter as many launches as [Config.History] has records. The error is [explain.ErrUnknownTrace]. It makes no device call, and is safe
// for concurrent use.
func (r *Runtime) Explain(trace [16]byte) (explain.Explanation, error) {
	if r == nil {
		return explain.Explanation{Trace: trace}, r.refuseClosed("Explain")
	}
	return explain.New(r.deviceWork.events(r.Ordinal())).Explain(trace)
}
