package telemetry_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/names"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

// Many goroutines run sampled, unsampled and failing operations while others
// scrape; then every count must be exact and every span closed.
func TestHammer(t *testing.T) {
	const goroutines, rounds = 8, 200
	r := newTraced(t, telemetry.Config{})
	findings := telemetry.NewFindings(telemetry.FindingsConfig{Keep: 3})
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(must.Get(metrics.NewCollector(
		metrics.Source{Device: r, Operations: r.Operations, Findings: findings.CountsByTag}))(t))

	stop := make(chan struct{})
	var scraper, workers sync.WaitGroup
	scraper.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if _, err := registry.Gather(); err != nil {
					t.Error(err)
				}
			}
		}
	})
	for i := range goroutines {
		workers.Go(func() {
			for round := range rounds {
				ctx := r.request(t)
				if round%2 == 0 {
					ctx = unsampled(ctx)
				}
				expect.Success(t, turn(ctx, r, core.StreamID(i), round))
				findings.Report(core.Finding{Kind: names.FindingLeak})
			}
		})
	}
	workers.Wait()
	close(stop)
	scraper.Wait()

	const n = goroutines * rounds
	o := r.Operations()
	if o.Succeeded(oplog.OpAllocate) != n || o.Succeeded(oplog.OpPrepare) != n || o.Succeeded(oplog.OpDeallocate) != n ||
		o.Succeeded(oplog.OpFinish)+o.Succeeded(oplog.OpAbort) != n || o.Failed(oplog.OpAllocate, metrics.ReasonInvalidRequest) != n || o.Calls(oplog.OpAllocate) != 2*n {
		t.Errorf("counts are off after %d rounds: %+v", n, o)
	}
	if findings.Total() != n {
		t.Errorf("%d findings, want %d", findings.Total(), n)
	}
	if started, ended := len(r.recorder.Started()), len(r.recorder.Ended()); started != ended || started == 0 {
		t.Errorf("%d spans started, %d ended", started, ended)
	}
}

// turn is one life of a block with one refusal.
func turn(ctx context.Context, r core.Resource, stream core.StreamID, round int) error {
	if _, err := r.Allocate(ctx, core.Request{}); err == nil {
		return errors.New("zero bytes were allocated")
	}
	b, err := r.Allocate(ctx, core.Request{Bytes: 64, Stream: stream})
	if err != nil {
		return err
	}
	ticket, err := r.PrepareUse(ctx, core.UseRequest{Stream: stream + 1, Uses: uses(core.Write, b)})
	if err != nil {
		return err
	}
	end := r.FinishUse
	if round%3 == 0 {
		end = r.AbortUse
	}
	_, freed := r.Deallocate(ctx, b.ID)
	return errors.Join(freed, end(ctx, ticket))
}
