package history_test

import (
	"context"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry/history"
)

// Many goroutines allocate, launch and free while others export in every
// format; each export keeps the rules.
func TestHammerOfExportsUnderLoad(t *testing.T) {
	rt, source := open(t, fencepost.Config{History: 2048, Guard: "sample:65536"})
	s := streams(t, rt, 6)
	shared := allocate(t, rt, 4096, s[0], "shared")
	stop := make(chan struct{})
	var readers, writers sync.WaitGroup
	for _, format := range history.Formats() {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				file := export(t, source, format)
				if format == history.Perfetto {
					readTrace(t, file)
				}
			}
		})
	}
	for i, stream := range s {
		writers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 3))
			for range 150 {
				b, err := rt.Allocate(context.Background(), core.Request{Bytes: 1 + random.Uint64N(1<<16), Stream: stream, Tag: "hammer"})
				if err != nil {
					t.Error(err)
					return
				}
				uses := []core.Use{{Block: b.ID, Access: core.Write}, {Block: shared.ID, Access: core.Read}}
				expect.Success(t, rt.LaunchNamed(context.Background(), "mix", stream, uses, func(context.Context) error { return nil }))
				if _, err := rt.Deallocate(context.Background(), b.ID); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
	free(t, rt, shared)
	must.Do(t, rt.Drain(context.Background()))
	if report := checkSnapshot(t, export(t, source, history.PyTorch)); len(report.Broken) > 0 || report.Active != 0 {
		t.Errorf("%+v", report)
	}
}

// full is a ring of the default size with launches and waits.
func full(t testing.TB) history.Source {
	t.Helper()
	rt, source := open(t, fencepost.Config{Guard: "off"})
	s := streams(t, rt, 16)
	for i := range 3 * 1024 {
		b := allocate(t, rt, 4096, s[i%16], "rows")
		launch(t, rt, "write", s[i%16], core.Write, b)
		launch(t, rt, "read", s[(i+1)%16], core.Read, b)
		free(t, rt, b)
	}
	must.Do(t, rt.Drain(context.Background()))
	return source
}

func BenchmarkExport(b *testing.B) {
	source := full(b)
	for _, format := range history.Formats() {
		b.Run(string(format), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := source.Write(io.Discard, format); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

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
		frozen.Events = func() []oplog.Event { return events }
		happened(1000)
		if report := checkSnapshot(t, export(t, frozen, history.PyTorch)); len(report.Broken) > 0 || len(report.Actions) == 0 {
			t.Errorf("%+v", report)
		}
	}
	cancel()
	churn.Wait()
}
