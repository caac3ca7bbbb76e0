package metrics_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

// However many goroutines count on however many streams, with or without sharing one.
func TestNoCallIsLostBetweenStreams(t *testing.T) {
	const each = 2000
	var calls metrics.Calls
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range each {
				calls.Note(core.OpAllocate, core.StreamID(g/2+i%200), time.Duration(i), core.SpanRef{}, nil)
			}
		})
	}
	all.Wait()
	o := calls.Snapshot(time.Time{}, 0)
	if n := o.Calls(core.OpAllocate); n != 8*each || o.Succeeded(core.OpAllocate) != n {
		t.Errorf("%d calls are counted of %d", n, 8*each)
	}
}

// BenchmarkNote counts from goroutines on streams of their own.
func BenchmarkNote(b *testing.B) {
	var calls metrics.Calls
	var streams atomic.Uint64
	b.RunParallel(func(pb *testing.PB) {
		stream := core.StreamID(streams.Add(1))
		for i := 0; pb.Next(); i++ {
			calls.Note(core.OpAllocate, stream, time.Duration(500+i%16), core.SpanRef{}, nil)
		}
	})
}
