package shown_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

// crowd is a runtime over a device that costs nothing, with live blocks under
// many tags on one stream.
type crowd struct {
	*fencepost.Runtime
	stream core.StreamID
	blocks []core.BlockID
	pages  http.Handler
}

func openCrowd(tb testing.TB, blocks, tags int) *crowd {
	tb.Helper()
	rt, err := fencepost.Open(context.Background(), fencepost.Config{Driver: &drivertest.Null{}, Streams: 4, Guard: "off"})
	must.Do(tb, err)
	l, err := rt.Streams().Acquire(context.Background(), "crowd")
	must.Do(tb, err)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(rt.Collector())
	c := &crowd{Runtime: rt, stream: l.ID(), blocks: make([]core.BlockID, 0, blocks), pages: promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true})}
	tb.Cleanup(func() {
		c.release(tb)
		_ = l.Release()
		if _, err := rt.Close(context.Background()); err != nil {
			tb.Error(err)
		}
	})
	names := make([]core.Tag, tags)
	for i := range names {
		names[i] = core.Tag(fmt.Sprintf("tag-%05d", i))
	}
	for i := range blocks {
		b, err := rt.Allocate(context.Background(), core.Request{Bytes: 512 + uint64(i%tags), Stream: c.stream, Tag: names[i%tags]})
		must.Do(tb, err)
		c.blocks = append(c.blocks, b.ID)
	}
	return c
}

func (c *crowd) release(tb testing.TB) {
	tb.Helper()
	for _, id := range c.blocks {
		must.Get(c.Deallocate(context.Background(), id))(tb)
	}
	c.blocks = nil
}

// scrape fetches the page as a server would.
func (c *crowd) scrape(tb testing.TB) []byte {
	tb.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "http://localhost/metrics", nil)
	r.Header.Set("Accept", "application/openmetrics-text;version=1.0.0")
	c.pages.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		tb.Fatalf("the scrape answers %d: %s", w.Code, w.Body)
	}
	return w.Body.Bytes()
}

// crowds are the sizes that scrapes are measured at; the first is the baseline.
var crowds = []struct{ blocks, tags int }{{16, 16}, {100_000, 16}, {100_000, 10_000}, {1_000_000, 10_000}}

func crowdName(i int) string {
	if i == 0 {
		return "bare"
	}
	return fmt.Sprintf("blocks=%d,tags=%d", crowds[i].blocks, crowds[i].tags)
}

// BenchmarkScrape is one scrape of a runtime with so many live blocks, through
// the handler; series is how many lines it has.
func BenchmarkScrape(b *testing.B) {
	for i, size := range crowds {
		b.Run(crowdName(i), func(b *testing.B) {
			c := openCrowd(b, size.blocks, size.tags)
			if tagged := taggedSeries(c.scrape(b)); tagged > maxTaggedSeries {
				b.Fatalf("%d series have a tag, the limit is %d", tagged, maxTaggedSeries)
			}
			lines := 0
			for b.Loop() {
				lines = countLines(c.scrape(b))
			}
			b.ReportMetric(float64(lines), "lines")
		})
	}
}

// BenchmarkHolders is what of a scrape the budget's list of holders takes.
func BenchmarkHolders(b *testing.B) {
	for i, size := range crowds {
		b.Run(crowdName(i), func(b *testing.B) {
			c := openCrowd(b, size.blocks, size.tags)
			for b.Loop() {
				c.Budget().Holders()
			}
		})
	}
}

func countLines(page []byte) (n int) {
	for _, char := range page {
		if char == '\n' {
			n++
		}
	}
	return n
}

// maxTaggedSeries: the bytes and the blocks of so many tags, and of the others,
// live, pending and quarantined, and the peak of the last minute.
const maxTaggedSeries = (2*3 + 1) * (metrics.MaxTags + 1)

func taggedSeries(page []byte) int {
	return bytes.Count(page, []byte("\ngpumem_tag_"))
}

// BenchmarkPairDuringScrapes is an allocation and its free beside 100 000 live
// blocks: bare, and while the metrics are scraped ten times a second. p99-ns is
// the 99th percentile of the pairs.
func BenchmarkPairDuringScrapes(b *testing.B) {
	for _, name := range []string{"bare", "scraped"} {
		b.Run(name, func(b *testing.B) {
			c := openCrowd(b, 100_000, 1000)
			stop := func() int { return 0 }
			if name == "scraped" {
				stop = c.scrapeUntil(b)
			}
			took := make([]time.Duration, 0, b.N)
			b.ResetTimer()
			for range b.N {
				start := time.Now()
				block, err := c.Allocate(context.Background(), core.Request{Bytes: 4096, Stream: c.stream, Tag: "pair"})
				if err == nil {
					_, err = c.Deallocate(context.Background(), block.ID)
				}
				if err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(start))
			}
			b.StopTimer()
			b.ReportMetric(float64(stop()), "scrapes")
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100]), "p99-ns")
		})
	}
}

// scrapeUntil scrapes ten times a second until stop is called, which says how
// often that was.
func (c *crowd) scrapeUntil(tb testing.TB) (stop func() int) {
	done, scrapes := make(chan struct{}), make(chan int)
	go func() {
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for n := 0; ; n++ {
			c.scrape(tb)
			select {
			case <-ticker.C:
			case <-done:
				scrapes <- n + 1
				return
			}
		}
	}()
	return func() int { close(done); return <-scrapes }
}

// Ten thousand tags make as many series as sixty-four and the others, and what
// a scrape leaves behind on the heap does not grow with blocks or tags.
func TestAScrapeOfACrowdIsBounded(t *testing.T) {
	blocks, tags := 50_000, 10_000
	if testing.Short() {
		blocks, tags = 5000, 1000
	}
	few, many := openCrowd(t, 1000, 10), openCrowd(t, blocks, tags)
	for name, c := range map[string]*crowd{"few": few, "many": many} {
		page := c.scrape(t)
		if tagged := taggedSeries(page); tagged == 0 || tagged > maxTaggedSeries {
			t.Errorf("%s: %d series have a tag, the limit is %d", name, tagged, maxTaggedSeries)
		}
	}
	if a, b := countLines(few.scrape(t))-taggedSeries(few.scrape(t)), countLines(many.scrape(t))-taggedSeries(many.scrape(t)); a != b {
		t.Errorf("the scrapes have %d and %d lines without a tag", a, b)
	}
	if sum, want := sumOf(t, many.scrape(t), "gpumem_tag_bytes"), float64(many.Stats().Live.Bytes); sum != want {
		t.Errorf("the tags sum to %v bytes, %v are live", sum, want)
	}
	before := heapInUse()
	for range 20 {
		many.scrape(t)
	}
	if grown := heapInUse() - before; grown > 1<<20 {
		t.Errorf("20 scrapes left %d bytes on the heap", grown)
	}
}

// sumOf adds the samples of a metric.
func sumOf(tb testing.TB, page []byte, name string) (sum float64) {
	tb.Helper()
	for line := range strings.Lines(string(page)) {
		if !strings.HasPrefix(line, name+"{") {
			continue
		}
		value := must.Get(strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:]), 64))(tb)
		sum += value
	}
	return sum
}

// heapInUse is the bytes of live objects on Go's heap.
func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
