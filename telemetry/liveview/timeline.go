package liveview

import (
	"fmt"
	"slices"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/telemetry/explain"
)

// The bounds of a timeline.
const (
	timelineReach = 10 * time.Second
	maxWorks      = 1024
	maxHeldUp     = 5
)

// timeline is what the device did in the last seconds. Times are in milliseconds before To, which is when it was made.
type timeline struct {
	To      time.Time `json:"to"`
	Reach   float64   `json:"reach_ms"`
	Works   []work    `json:"works"`
	Omitted int       `json:"omitted"`
	HeldUp  []heldUp  `json:"held_up"`
}

// work is a launch on the device, or an allocation that made its stream wait.
type work struct {
	// Stream is the number of the stream, Lease that of the lease.
	Stream  int           `json:"stream"`
	Lease   core.StreamID `json:"lease"`
	ID      uint64        `json:"id"`
	Name    string        `json:"name"`
	Trace   string        `json:"trace,omitempty"`
	Reached float64       `json:"reached"`
	Began   float64       `json:"began"`
	Ended   float64       `json:"ended"`
	Waits   []string      `json:"waits,omitempty"`
}

// heldUp is a request and what it lost to others' work.
type heldUp struct {
	Trace string  `json:"trace"`
	Lost  float64 `json:"lost_ms"`
	Text  string  `json:"text"`
}

// timelineOf takes the newest of what was timed.
func timelineOf(events []oplog.Event, now time.Time) timeline {
	t := timeline{To: now, Works: []work{}, HeldUp: []heldUp{}}
	events = slices.DeleteFunc(events, func(e oplog.Event) bool { return e.Device == nil || e.Device.Ended.Before(now.Add(-timelineReach)) })
	slices.SortFunc(events, func(a, b oplog.Event) int { return a.Device.Ended.Compare(b.Device.Ended) })
	if t.Omitted = max(0, len(events)-maxWorks); t.Omitted > 0 {
		events = events[t.Omitted:]
	}
	before := func(at time.Time) float64 { return float64(now.Sub(at).Microseconds()) / 1000 }
	for i := range events {
		w := events[i].Device
		shown := work{Stream: w.On, Lease: w.Stream, ID: w.Launch, Name: clip(w.Name, maxTagText), Reached: before(w.Reached), Began: before(w.Began), Ended: before(w.Ended)}
		for _, text := range explain.WaitsOf(w) {
			shown.Waits = append(shown.Waits, clip(text, maxText))
		}
		if !w.Span.IsZero() {
			shown.Trace = fmt.Sprintf("%x", w.Span.TraceID)
		}
		t.Works, t.Reach = append(t.Works, shown), max(t.Reach, min(shown.Reached, float64(timelineReach.Milliseconds())))
	}
	for _, r := range explain.New(events).MostHeldUp(maxHeldUp) {
		t.HeldUp = append(t.HeldUp, heldUp{fmt.Sprintf("%x", r.Trace), float64(r.Lost.Microseconds()) / 1000, clip(r.Worst.Text(), maxText)})
	}
	return t
}
