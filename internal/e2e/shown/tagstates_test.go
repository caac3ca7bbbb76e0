package shown_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// byTag are the bytes of a metric's series that have a tag, by "tag state".
func byTag(t *testing.T, rt *fencepost.Runtime, name string) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	e2e.Succeed(t, "registering", registry.Register(rt.Collector()))
	families := must.Get(registry.Gather())(t)
	values := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			values[labels["tag"]+" "+labels["state"]] = m.GetGauge().GetValue()
		}
	}
	return values
}

// Whose memory is quarantined, live and pending, from every side: the metric, the
// refusal, the live view. Together they are what the runtime has.
func TestWhatIsQuarantinedIsToldApartByTag(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{Guard: "hunt", Budget: 64 << 20, GuardConfig: debugguard.Config{QuarantineBytes: 32 << 20}})
	s := e2e.Lease(t, rt, "s")
	a, b := e2e.Allocate(t, rt, 8<<20, s.ID(), "a"), e2e.Allocate(t, rt, 4<<20, s.ID(), "b")
	e2e.Free(t, rt, e2e.Allocate(t, rt, 16<<20, s.ID(), "a"))
	ticket, err := rt.Core().PrepareUse(t.Context(), core.UseRequest{Stream: s.ID(), Uses: []core.Use{{Block: b.ID, Access: core.Write}}})
	e2e.Succeed(t, "preparing", err)
	e2e.Free(t, rt, b) // pending until the launch ends

	const padding = 2 << 10 // at most
	near := func(what string, got, want float64) {
		t.Helper()
		if got < want || got > want+padding {
			t.Errorf("%s: %v bytes, want %v and red zones", what, got, want)
		}
	}
	held, st := byTag(t, rt, "gpumem_tag_bytes"), rt.Stats()
	near("a live", held["a live"], 8<<20)
	near("a quarantined", held["a quarantined"], 16<<20)
	near("b pending", held["b pending"], 4<<20)
	sums := map[string]float64{}
	for _, state := range []string{"live", "pending", "quarantined"} {
		for _, tag := range []string{"a", "b"} {
			sums[state] += held[tag+" "+state]
		}
	}
	if len(held) != 6 || sums["live"] != float64(st.Live.Bytes) || sums["pending"] != float64(st.Pending.Bytes) || sums["quarantined"] != float64(st.Quarantined.Bytes) {
		t.Errorf("by tag %v, in all %+v", held, st)
	}
	if blocks := byTag(t, rt, "gpumem_tag_blocks"); blocks["a live"] != 1 || blocks["a quarantined"] != 1 || blocks["b pending"] != 1 {
		t.Errorf("blocks %v", blocks)
	}

	var live struct {
		Device struct {
			Tags []struct {
				Tag                        string
				Live, Pending, Quarantined float64
			}
		}
	}
	h := e2e.HandlerOf(t, fencepost.HandlerConfig{}, rt)
	e2e.Succeed(t, "state", json.Unmarshal(e2e.Request(h, http.MethodGet, "/debug/gpumem/state", "").Body.Bytes(), &live))
	for _, tag := range live.Device.Tags {
		if tag.Live != held[tag.Tag+" live"] || tag.Pending != held[tag.Tag+" pending"] || tag.Quarantined != held[tag.Tag+" quarantined"] {
			t.Errorf("the live view says %+v, the metric %v", tag, held)
		}
	}

	_, err = rt.Reserve(t.Context(), 60<<20, "c") // gives quarantine up, and is refused
	var refusal *core.OutOfBudgetError
	if !errors.As(err, &refusal) || slices.ContainsFunc(refusal.Holders, func(h core.Holder) bool { return h.State == core.Quarantined }) {
		t.Errorf("%v", err)
	}
	e2e.Free(t, rt, a)
	_, err = rt.Reserve(t.Context(), 65<<20, "c") // larger than the budget: gives nothing up
	if !errors.As(err, &refusal) || refusal.Quarantined < 8<<20 || !slices.ContainsFunc(refusal.Holders, func(h core.Holder) bool {
		return h.Tag == "a" && h.State == core.Quarantined && h.Bytes == refusal.Quarantined
	}) {
		t.Errorf("%v", err)
	}
	e2e.Succeed(t, "finishing", rt.Core().FinishUse(t.Context(), ticket))
}
