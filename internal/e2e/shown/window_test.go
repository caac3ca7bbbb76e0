package shown_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// windowPeaks are the values of the metric by "state window", as one scrape has
// them.
func windowPeaks(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	e2e.Succeed(t, "registering", registry.Register(c))
	families := must.Get(registry.Gather())(t)
	values := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "gpumem_memory_window_peak_bytes" {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			values[labels["state"]+" "+labels["window"]] = m.GetGauge().GetValue()
		}
	}
	return values
}

// A service that holds memory for milliseconds is idle whenever it is scraped. The
// windows show its bursts to everybody alike, from the burst until the next window
// is over, and no longer.
func TestABurstOfAnIdleServiceIsSeenByEveryScrape(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := e2e.Open(t, fencepost.Config{Guard: "off"})
		s := e2e.Lease(t, rt, "service")
		second := func() int64 { return time.Now().Unix() }
		to := func(at int64) {
			time.Sleep(time.Until(time.Unix(at, 5e8)))
			synctest.Wait()
		}
		start := (second()/60 + 1) * 60 // of both windows
		to(start + 20)                  // a window of 15 s and five seconds
		b := e2e.Allocate(t, rt, 64<<20, s.ID(), "burst")
		time.Sleep(5 * time.Millisecond)
		e2e.Free(t, rt, b)
		e2e.Succeed(t, "draining", rt.Drain(t.Context()))
		for at := start + 20; at < start+200; at++ {
			to(at)
			want := map[string]float64{"live 15s": 0, "live 60s": 0, "outstanding 15s": 0, "outstanding 60s": 0}
			if at < start+45 {
				want["live 15s"], want["outstanding 15s"] = 64<<20, 64<<20
			}
			if at < start+120 {
				want["live 60s"], want["outstanding 60s"] = 64<<20, 64<<20
			}
			scrapes := 1
			if at%7 == 0 {
				scrapes = 5
			}
			for range scrapes {
				got := windowPeaks(t, rt.Collector())
				for series, bytes := range want {
					if value, there := got[series]; !there || value != bytes {
						t.Fatalf("%d s after the start: %s is %v (exported: %v), want %v", at-start, series, value, there, bytes)
					}
				}
			}
		}
	})
}

// What the guard holds back is outstanding and not live, in the windows too.
func TestTheWindowsOfLiveBytesLeaveOutWhatIsQuarantined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := e2e.Open(t, fencepost.Config{Guard: "hunt"})
		for range 4 {
			e2e.Free(t, rt, e2e.Allocate(t, rt, 8<<20, core.DefaultStream, "a"))
		}
		st, got := rt.Stats(), windowPeaks(t, rt.Collector())
		for _, window := range []string{"15s", "60s"} {
			if live := got["live "+window]; live < 8<<20 || live > 9<<20 || live != float64(st.PeakBytes) {
				t.Errorf("%s: %v live, the peak is %d", window, live, st.PeakBytes)
			}
			if held := got["outstanding "+window]; held < 32<<20 || held != float64(st.PeakOutstanding) || held != float64(st.Quarantined.Bytes) {
				t.Errorf("%s: %v outstanding, the peak is %d, quarantined are %d", window, held, st.PeakOutstanding, st.Quarantined.Bytes)
			}
		}
	})
}

// A program may go on without the runtime, and be scraped.
func TestTheWindowsOfAClosedRuntimeEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := e2e.Open(t, fencepost.Config{Guard: "off"})
		e2e.Free(t, rt, e2e.Allocate(t, rt, 64<<20, core.DefaultStream, "burst"))
		_, err := rt.Close(t.Context())
		e2e.Succeed(t, "close", err)
		var last map[string]float64
		for range 12 { // for three minutes
			time.Sleep(15 * time.Second)
			last = windowPeaks(t, rt.Collector())
		}
		for series, bytes := range last {
			if bytes != 0 {
				t.Errorf("three minutes after the end %s is %v", series, bytes)
			}
		}
	})
}
