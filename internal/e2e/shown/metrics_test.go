package shown_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// scrapeHistogram reads a histogram that has no label but the device.
func scrapeHistogram(t *testing.T, rt *fencepost.Runtime, name string) (count uint64, sum float64) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	must.Do(t, registry.Register(rt.Collector()))
	families := must.Get(registry.Gather())(t)
	for _, f := range families {
		if f.GetName() == name {
			h := f.GetMetric()[0].GetHistogram()
			return h.GetSampleCount(), h.GetSampleSum()
		}
	}
	t.Fatalf("%s is not exported", name)
	return 0, 0
}

func TestTheTimeFromFreeToReusableIsExported(t *testing.T) {
	for _, resource := range []fencepost.Backend{fencepost.Async, fencepost.Direct} {
		rt := e2e.Open(t, fencepost.Config{Resource: resource})
		for range 3 {
			e2e.Free(t, rt, e2e.Allocate(t, rt, 4096, core.DefaultStream, "a"))
		}
		must.Do(t, rt.Drain(t.Context()))
		count, sum := scrapeHistogram(t, rt, "gpumem_free_to_reusable_seconds")
		if st := rt.Stats(); count != 3 || count != st.FreeToReusable.Count() || sum != st.FreeToReusable.Nanoseconds/1e9 || sum <= 0 {
			t.Errorf("%v: %d frees of %v s, Stats says %+v", resource, count, sum, st.FreeToReusable)
		}
	}
}

func TestTheMetricsOfALivingStackLintClean(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{})
	e2e.Free(t, rt, e2e.Allocate(t, rt, 4096, core.DefaultStream, "a"))
	problems, err := testutil.CollectAndLint(rt.Collector())
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

func TestTheMetricsEqualTheStats(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{Budget: 64 << 20, Guard: "hunt"})
	x, y := e2e.Lease(t, rt, "x"), e2e.Lease(t, rt, "y")
	must.Do(t, e2e.Life(t.Context(), rt))
	if _, err := rt.Allocate(t.Context(), core.Request{Bytes: 1 << 30, Stream: x.ID()}); err == nil {
		t.Fatal("the budget let a gigabyte through")
	}
	live := e2e.Allocate(t, rt, 3<<20, x.ID(), "live")
	e2e.Free(t, rt, e2e.Allocate(t, rt, 1<<20, y.ID(), "quarantined"))
	claim, err := rt.Reserve(t.Context(), 1<<20, "claim")
	must.Do(t, err)

	got, st := e2e.Scrape(t, rt), rt.Stats()
	for name, want := range map[string]uint64{
		"gpumem_memory_bytes": st.Outstanding().Bytes, "gpumem_memory_requested_bytes": st.Outstanding().Requested, "gpumem_blocks": st.Outstanding().Blocks,
		"gpumem_memory_peak_bytes": st.PeakBytes, "gpumem_memory_requested_peak_bytes": st.PeakRequested, "gpumem_memory_outstanding_peak_bytes": st.PeakOutstanding,
		"gpumem_budget_limit_bytes": 64 << 20, "gpumem_budget_charged_bytes": st.Charged, "gpumem_budget_claimed_bytes": 1 << 20, "gpumem_budget_claims": 1,
		"gpumem_budget_refusals_total": st.Refusals, "gpumem_refusals_total": 1,
		"gpumem_allocations_total": st.Allocations, "gpumem_deallocations_total": st.Deallocations, "gpumem_driver_failures_total": 0,
		"gpumem_launches_total": st.Launches, "gpumem_waits_total": st.WaitsQueued + st.WaitsElided,
		"gpumem_streams_limit": 16, "gpumem_health": 1, "gpumem_health_reasons": 0, "gpumem_sticky_errors_total": 0, "gpumem_accounting_underflows_total": 0, "gpumem_log_records_dropped_total": 0,
	} {
		if value, there := got[name]; !there || value != float64(want) {
			t.Errorf("%s is %v (exported: %v), Stats says %d", name, value, there, want)
		}
	}
	if st.Live.Requested != 3<<20 || st.Quarantined.Requested < 1<<20 || st.Allocations != 3 || st.Launches != 1 {
		t.Errorf("the work is not what the test did: %+v", st)
	}
	e2e.Free(t, rt, live)
	expect.Success(t, rt.ReleaseClaim(t.Context(), claim.ID))
}

func TestTheMetricsOfThePoolAreThoseOfItsBackend(t *testing.T) {
	own := []string{"gpumem_pool_fragmented_bytes", "gpumem_pool_limit_bytes", "gpumem_pool_moves_total", "gpumem_pool_moved_bytes_total", "gpumem_pool_move_seconds_total"}
	rt := e2e.Open(t, fencepost.Config{Guard: "off", Resource: fencepost.Async})
	e2e.Free(t, rt, e2e.Allocate(t, rt, 5<<20, core.DefaultStream, "freed"))
	e2e.Succeed(t, "draining", rt.Drain(t.Context()))
	got, st := e2e.Scrape(t, rt), rt.Stats()
	if st.Cached == 0 || got["gpumem_pool_cached_bytes"] != float64(st.Cached) {
		t.Errorf("the driver's pool caches %v, Stats says %d", got["gpumem_pool_cached_bytes"], st.Cached)
	}
	expect.Error(t, rt.SetPoolLimit(1<<30), errors.ErrUnsupported, "limiting the driver's pool")
	for _, name := range own {
		if value, there := got[name]; there {
			t.Errorf("%s is %v of the driver's pool", name, value)
		}
	}

	rt = e2e.Open(t, fencepost.Config{Guard: "off", Resource: fencepost.Pool, Pool: cuda.PoolConfig{Limit: 64 << 20}})
	live := e2e.Allocate(t, rt, 3<<20, core.DefaultStream, "live")
	e2e.Free(t, rt, e2e.Allocate(t, rt, 20<<20, core.DefaultStream, "freed"))
	e2e.Succeed(t, "trimming", rt.TrimPool(t.Context(), 0))
	got, st = e2e.Scrape(t, rt), rt.Stats()
	p := st.OwnPool
	var all core.PoolMoves
	for _, m := range []core.PoolMoves{p.Takeovers, p.Steals, p.Remaps, p.Growths, p.Trims} {
		all.Count, all.Bytes, all.Time = all.Count+m.Count, all.Bytes+m.Bytes, all.Time+m.Time
	}
	if p.Trims.Bytes == 0 || p.Fragmented == 0 || st.Cached != st.Reserved-3<<20 {
		t.Errorf("Stats say %+v, reserved %d, cached %d", p, st.Reserved, st.Cached)
	}
	for i, want := range []float64{float64(p.Fragmented), 64 << 20, float64(all.Count), float64(all.Bytes), all.Time.Seconds()} {
		if value, there := got[own[i]]; !there || math.Abs(value-want) > want/1e9 {
			t.Errorf("%s is %v (exported: %v), want %v", own[i], value, there, want)
		}
	}
	e2e.Succeed(t, "changing the limit", rt.SetPoolLimit(32<<20))
	if limit := rt.Stats().OwnPool.Limit; limit != 32<<20 {
		t.Errorf("the limit is %d", limit)
	}
	e2e.Free(t, rt, live)
}

func TestAScrapeMakesNoDeviceCall(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{Async: cuda.AsyncConfig{ReapInterval: -1}}) // nor does anything in the background
	must.Do(t, rt.Drain(t.Context()))
	total := func() (n uint64) {
		for _, c := range e2e.Simulated(rt).Calls() {
			n += c
		}
		return n
	}
	before := total()
	for range 50 {
		e2e.Scrape(t, rt)
	}
	if after := total(); after != before {
		t.Errorf("50 scrapes made %d device calls", after-before)
	}
}

func TestTheDevicesMemoryIsExported(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{Guard: "ledger"}) // no red zones
	live := e2e.Allocate(t, rt, 5<<20, core.DefaultStream, "live")
	foreign := must.Get(rt.Driver().MemAlloc(16 << 20))(t)
	var got map[string]float64
	for deadline := time.Now().Add(time.Minute); got["gpumem_device_foreign_bytes"] == 0 || got["gpumem_pool_used_bytes"] == 0; time.Sleep(50 * time.Millisecond) {
		if got = e2e.Scrape(t, rt); time.Now().After(deadline) {
			t.Fatal("foreign memory never shows")
		}
	}
	m := rt.DeviceMemory()
	if m.Owned < 5<<20 || m.Free+m.Owned+m.Foreign != m.Total {
		t.Errorf("free, held and foreign are not the total: %+v", m)
	}
	for name, want := range map[string]float64{
		"gpumem_device_free_bytes": float64(m.Free), "gpumem_device_total_bytes": float64(m.Total), "gpumem_device_held_bytes": float64(m.Owned),
		"gpumem_device_foreign_bytes": 16 << 20, "gpumem_device_info": 1, "gpumem_drift_bytes": 0,
		"gpumem_pool_used_bytes": 5 << 20, "gpumem_history_records_total": 1,
	} {
		if value, there := got[name]; !there || value != want {
			t.Errorf("%s is %v (exported: %v), want %v", name, value, there, want)
		}
	}
	for _, name := range []string{"gpumem_device_read_timestamp_seconds", "gpumem_drift_read_timestamp_seconds"} {
		if age := float64(time.Now().Unix()) - got[name]; age < -1 || age > 60 {
			t.Errorf("%s is %v s old", name, age)
		}
	}
	e2e.Free(t, rt, live)
	expect.Success(t, rt.Driver().MemFree(foreign))
}

// A restart is a new start, to the millisecond.
func TestTheStartIsWhenTheRuntimeWasOpened(t *testing.T) {
	before := time.Now()
	rt := e2e.Open(t, fencepost.Config{})
	after := time.Now()
	got := int64(e2e.Scrape(t, rt)["gpumem_runtime_start_time_seconds"]*1e3 + 0.5)
	if got < before.UnixMilli() || got > after.UnixMilli() {
		t.Errorf("started at %d, opened between %d and %d", got, before.UnixMilli(), after.UnixMilli())
	}
}

func TestTheOldestLeaseIsExported(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{})
	if age := e2e.Scrape(t, rt)["gpumem_stream_oldest_lease_seconds"]; age != 0 {
		t.Errorf("without a lease: %v", age)
	}
	e2e.Lease(t, rt, "old")
	time.Sleep(2 * time.Millisecond)
	if age := e2e.Scrape(t, rt)["gpumem_stream_oldest_lease_seconds"]; age < 0.002 || age > 60 {
		t.Errorf("the lease is %v s old", age)
	}
}

func TestALostDeviceShowsInTheMetrics(t *testing.T) {
	rt := e2e.OpenDirty(t, fencepost.Config{})
	e2e.Simulated(rt).LoseContext(700)
	_, _ = rt.Allocate(t.Context(), core.Request{Bytes: 64}) // meets the loss
	got := e2e.Scrape(t, rt)
	if got["gpumem_sticky_errors_total"] != 1 || got["gpumem_findings_total"] != 1 {
		t.Errorf("sticky errors %v, findings %v", got["gpumem_sticky_errors_total"], got["gpumem_findings_total"])
	}
	text := e2e.Gather(t, rt)
	for _, want := range []string{`gpumem_health{device="0",state="poisoned"} 1`, `gpumem_health{device="0",state="ok"} 0`, `gpumem_health_reasons{device="0",reason="sticky_error"} 1`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
}
