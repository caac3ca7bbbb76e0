package shown_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
)

// BenchmarkLiveState is a state of the live view with the map of so many blocks
// made anew, which happens for a twentieth of the time at most; bytes is its
// size, and longest the longest allocation and free on the blocks' own stream
// meanwhile, in microseconds.
func BenchmarkLiveState(b *testing.B) {
	for i, size := range crowds {
		b.Run(crowdName(i), func(b *testing.B) {
			c := openCrowd(b, size.blocks, size.tags)
			var done atomic.Bool
			longest := make(chan time.Duration)
			go func() { longest <- c.churn(b, &done) }()
			bytes := 0
			for b.Loop() {
				h, err := fencepost.NewHandler(fencepost.HandlerConfig{Runtimes: []*fencepost.Runtime{c.Runtime}})
				if err != nil {
					b.Fatal(err)
				}
				bytes = e2e.Request(h, http.MethodGet, "/debug/gpumem/state", "").Body.Len()
			}
			done.Store(true)
			b.ReportMetric(float64(bytes), "bytes")
			b.ReportMetric(float64((<-longest).Microseconds()), "longest-µs")
		})
	}
}

// churn allocates and frees until done, and returns the longest time that took.
func (c *crowd) churn(b *testing.B, done *atomic.Bool) (longest time.Duration) {
	for !done.Load() {
		began := time.Now()
		block, err := c.Allocate(context.Background(), core.Request{Bytes: 512, Stream: c.stream, Tag: "churn"})
		if err == nil {
			_, err = c.Deallocate(context.Background(), block.ID)
		}
		if err != nil {
			b.Error(err)
			return longest
		}
		longest = max(longest, time.Since(began))
		time.Sleep(50 * time.Microsecond)
	}
	return longest
}
