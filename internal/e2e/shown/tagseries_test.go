package shown_test

import (
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

// Two runtimes do the same; one is scraped all the time, the other at the end. More
// tags than places come and go for milliseconds, and the scrapes of both are equal. With the race detector
// that takes some 12 seconds, most of them for scrapes of every series.
func TestTheTagsThatHaveSeriesDoNotDependOnScrapes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := fencepost.Config{Guard: "off", // a quarter of an hour of looks every 10 ms would be all that the test does
			Async: cuda.AsyncConfig{ReapInterval: time.Second / 4}, Pool: cuda.PoolConfig{ReapInterval: time.Second / 4}}
		often, once := e2e.Open(t, cfg), e2e.Open(t, cfg)
		runtimes := []*fencepost.Runtime{often, once}
		var frees []func()
		burst := func(tag core.Tag, bytes uint64, keep bool) {
			for _, rt := range runtimes {
				s := e2e.Lease(t, rt, "s")
				b := e2e.Allocate(t, rt, bytes, s.ID(), tag)
				end := func() { e2e.Free(t, rt, b); e2e.Succeed(t, "release", s.Release()) }
				if keep {
					frees = append(frees, end)
				} else {
					end()
				}
			}
		}
		time.Sleep(time.Second / 2) // no burst at the instant of a look, which might see its memory or not
		burst("long", 1<<20, true)
		for i := range 100 {
			burst(core.Tag(fmt.Sprint("burst-", i)), 4096, false)
			time.Sleep(7 * time.Second)
			if !testing.Short() || i%5 == 0 { // a scrape is most of what the test does
				byTag(t, often, "gpumem_tag_bytes")
			}
		}
		burst("late", 8<<20, true) // the first bursts are idle for longer than ten minutes
		time.Sleep(2 * time.Second)
		synctest.Wait()
		a, b := byTag(t, often, "gpumem_tag_bytes"), byTag(t, once, "gpumem_tag_bytes")
		if !maps.Equal(a, b) {
			t.Errorf("scraped often: %v\nscraped once: %v", a, b)
		}
		if len(a) != 3*(metrics.MaxTags+1) || a["long live"] != 1<<20 || a["late live"] != 8<<20 {
			t.Errorf("%d series, long %v, late %v", len(a), a["long live"], a["late live"])
		}
		for _, tag := range []string{"burst-1", "burst-62"} {
			if zero, there := a[tag+" live"]; !there || zero != 0 {
				t.Errorf("%s has no zero", tag)
			}
		}
		if _, there := a["burst-0 live"]; there {
			t.Error("the tag that was idle longest kept its place")
		}
		for _, end := range frees {
			end()
		}
	})
}
