package metrics

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// A counter that comes late, with a value, has the time of the look before as that from which it
// counts, and keeps it.
func TestALateCounterSaysSinceWhenItCounts(t *testing.T) {
	var late atomic.Bool
	opened := time.Now().Add(-time.Hour)
	c := &Collector{}
	c.add(opened, nil, read(late.Load, family[bool]{counter("n_total", "h", "tag"), func(late bool, out sender) {
		out.count(1, "early")
		if late {
			out.count(3, "late")
		}
	}}))
	gather := func() map[string]time.Time {
		born := map[string]time.Time{}
		ch := make(chan prometheus.Metric, 4)
		c.Collect(ch)
		close(ch)
		for m := range ch {
			var out dto.Metric
			if err := m.Write(&out); err != nil {
				t.Fatal(err)
			}
			born[out.Label[0].GetValue()] = out.GetCounter().GetCreatedTimestamp().AsTime()
		}
		return born
	}
	if at := gather()["early"]; !at.Equal(opened) {
		t.Errorf("a counter that was there at the first look counts since %v, want %v", at, opened)
	}
	before := time.Now()
	late.Store(true)
	first := gather()["late"]
	if !first.After(opened) || first.After(before) {
		t.Errorf("the late one counts since %v, and first counted after %v", first, before)
	}
	if again := gather(); !again["late"].Equal(first) || !again["early"].Equal(opened) {
		t.Errorf("at the next look they count since %v", again)
	}
}
