package history_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/telemetry/history"
)

// A history that is kept says what was, however much happens before it is
// written.
func TestAHistoryThatIsKeptIsWholeWhateverGoesOnMeanwhile(t *testing.T) {
	rt, source := open(t, fencepost.Config{History: 1024, Guard: "sample:65536"})
	ctx, cancel := context.WithCancel(t.Context())
	var churn sync.WaitGroup
	for _, stream := range streams(t, rt, 3) {
		churn.Go(func() {
			var kept []core.Block
			for i := 0; ctx.Err() == nil; i++ {
				b, err := rt.Allocate(t.Context(), core.Request{Bytes: uint64(1+i%7) << 10, Stream: stream, Tag: "churn"})
				if err != nil {
					t.Error(err)
					return
				}
				if i%20 == 0 {
					time.Sleep(time.Millisecond) // others need the processor too
				}
				if kept = append(kept, b); len(kept) > 20 {
					free(t, rt, kept[0])
					kept = kept[1:]
				}
			}
			free(t, rt, kept...)
		})
	}
	happened := func(n uint64) {
		for from := rt.History().Total(); rt.History().Total() < from+n; time.Sleep(time.Millisecond) {
		}
	}
	for range 3 {
		happened(1000)
		frozen := source.ListNow()
		events := source.Events()
		frozen.Events = func() []core.Event { return events }
		happened(1000)
		if report := checkSnapshot(t, export(t, frozen, history.PyTorch)); len(report.Broken) > 0 || len(report.Actions) == 0 {
			t.Errorf("%+v", report)
		}
	}
	cancel()
	churn.Wait()
}
