package bench

import (
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
)

// BenchmarkMeasuredPair is the pair over the runtime's own pool: for nobody's account while no
// stretch is measured, for one, and while one stretch and a hundred are measured. Batches of all take turns,
// so that the ratios are of one machine load.
func BenchmarkMeasuredPair(b *testing.B) {
	const batch = 2000
	s := service(b, nothing(), over(fencepost.Pool))
	stream, ctx := s.lease(b).ID(), s.ctx
	measure := core.Base(s.runtime.Resource()).(interface {
		Measure() (soFar, end func() core.Peak)
	}).Measure
	run := func(account *core.Account, stretches int) time.Duration {
		ends := make([]func() core.Peak, stretches)
		for i := range ends {
			_, ends[i] = measure()
		}
		start := time.Now()
		for range batch {
			block, err := s.runtime.Allocate(ctx, core.Request{Bytes: 4096, Stream: stream, Tag: "bench", Account: account})
			if err != nil {
				b.Fatal(err)
			}
			if _, err := s.runtime.Deallocate(ctx, block.ID); err != nil {
				b.Fatal(err)
			}
		}
		took := time.Since(start)
		for _, end := range ends {
			end()
		}
		return took
	}
	best := map[string]time.Duration{}
	for b.Loop() {
		for name, took := range map[string]time.Duration{
			"none": run(nil, 0), "account": run(core.NewAccount(), 0), "one": run(nil, 1), "hundred": run(nil, 100),
		} {
			if best[name] == 0 || took < best[name] {
				best[name] = took
			}
		}
	}
	for name, took := range best {
		b.ReportMetric(float64(took.Nanoseconds())/batch, "ns/pair-"+name)
		b.ReportMetric(float64(took)/float64(best["none"]), "x-"+name)
	}
}
