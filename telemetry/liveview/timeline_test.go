package liveview_test

import (
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry/liveview"
)

// about is equal but for the microsecond to which times are cut.
func about(ms, want float64) bool { return math.Abs(ms-want) < 0.0021 }

// The timeline is of the last seconds, bounded, and says what waited for what and who lost most by it.
func TestTheTimelineIsWhatTheDeviceDidOfLate(t *testing.T) {
	now := time.Now()
	work := func(id uint64, ago, ran time.Duration, trace byte, waits ...oplog.DeviceWait) oplog.Event {
		w := oplog.DeviceWork{Launch: id, Name: "merge", Stream: core.StreamID(1 + id%3), On: int(id % 3), Began: now.Add(-ago), Ended: now.Add(-ago + ran), Prepared: now.Add(-ago - time.Second), Reached: now.Add(-ago), Waits: waits}
		if trace > 0 {
			w.Span = core.SpanRef{TraceID: [16]byte{15: trace}, SpanID: [8]byte{7: trace}}
		}
		for _, wait := range waits {
			w.Reached = w.Reached.Add(-wait.Held)
		}
		return w.Event(0)
	}
	events := []oplog.Event{{Op: oplog.OpReap, Time: now}, work(1, time.Minute, time.Millisecond, 0), work(2, 9*time.Second, time.Millisecond, 0)}
	for id := range uint64(2000) {
		events = append(events, work(10+id, 3*time.Second-time.Duration(id)*time.Millisecond, 900*time.Microsecond, 0))
	}
	events = append(events, work(5, 500*time.Millisecond, 20*time.Millisecond, 7,
		oplog.DeviceWait{Stream: 9, For: core.WaitRef{Launch: 4}, Launch: "sort", Generation: 3, Tag: "index", Access: core.Write, Own: core.Read, Held: 11 * time.Millisecond},
		oplog.DeviceWait{Stream: 8, For: core.WaitRef{Launch: 3}, Launch: "short", Tag: "index", Access: core.Write, Own: core.Read, Held: time.Microsecond}))
	h := view(t, liveview.Source{Resource: &resource{}, Device: func() []oplog.Event { return slices.Clone(events) }}, liveview.Source{Resource: &resource{ordinal: 1}})
	var got struct {
		Reach   float64 `json:"reach_ms"`
		Omitted int
		Works   []struct {
			ID, Stream            uint64
			Name, Trace           string
			Reached, Began, Ended float64
			Waits                 []string
		}
		HeldUp []struct {
			Trace, Text string
			Lost        float64 `json:"lost_ms"`
		} `json:"held_up"`
	}
	must.Do(t, json.Unmarshal(get(t, h, "/timeline?device=0").Body.Bytes(), &got))
	if len(got.Works) != 1024 || got.Omitted != 2+2000-1024 || got.Reach > 10_000 {
		t.Fatalf("%d works, %d omitted, over %v ms", len(got.Works), got.Omitted, got.Reach)
	}
	last := got.Works[len(got.Works)-1]
	if last.ID != 5 || last.Trace != "00000000000000000000000000000007" || !about(last.Began-last.Ended, 20) || !about(last.Reached-last.Began, 11) {
		t.Errorf("%+v", last)
	}
	if len(last.Waits) != 1 || !strings.HasPrefix(last.Waits[0], `11ms: launch 5 "merge" waited for launch 4 "sort"`) {
		t.Errorf("%q", last.Waits)
	}
	if len(got.HeldUp) != 1 || got.HeldUp[0].Trace != last.Trace || got.HeldUp[0].Lost < 10.99 || got.HeldUp[0].Text == "" {
		t.Errorf("%+v", got.HeldUp)
	}
	if code := get(t, h, "/timeline?device=1").Code; code != http.StatusNotFound {
		t.Errorf("a device whose work is not kept: %d", code)
	}
}
