package profile_test

import (
	"context"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry/profile"
)

// Many goroutines allocate, free and report stacks while others take
// profiles. No total ever falls, and at the end every sum is exact.
func TestHammerOfProfilesUnderLoad(t *testing.T) {
	rt, source := open(t)
	const goroutines, each = 8, 300
	stop := make(chan struct{})
	var readers, writers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			var last core.Amount
			for {
				select {
				case <-stop:
					return
				default:
				}
				now := allocated(written(t, source))
				if now.Bytes < last.Bytes || now.Blocks < last.Blocks {
					t.Errorf("everything ever allocated fell from %+v to %+v", last, now)
				}
				last = now
				expect.Success(t, profile.Write(io.Discard, 1, source))
			}
		})
	}
	left := make([][]core.Block, goroutines)
	for g := range goroutines {
		stream := lease(t, rt).ID()
		writers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(g), 7))
			for range each {
				b, err := rt.Allocate(t.Context(), core.Request{Bytes: 1 + random.Uint64N(20_000), Stream: stream, Tag: "hammer"})
				if err != nil {
					t.Error(err)
					return
				}
				if random.IntN(4) == 0 {
					source.Allocations.Sampled(1, b.Tag, core.CaptureStack(0))
				}
				if left[g] = append(left[g], b); len(left[g]) > 20 {
					if _, err := rt.Deallocate(t.Context(), left[g][0].ID); err != nil {
						t.Error(err)
					}
					left[g] = left[g][1:]
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
	equalsStats(t, rt, source)
	for _, blocks := range left {
		free(t, rt, blocks...)
	}
	must.Do(t, rt.Drain(t.Context()))
	equalsStats(t, rt, source)
	if got, want := allocated(written(t, source)).Blocks, core.Base(rt.Core().Resource()).Stats().Allocations; got != want {
		t.Errorf("%d blocks were allocated, and the profile says %d", want, got)
	}
}

// Reading a profile of many blocks must not cost what the blocks cost.
func TestAProfileOfManyBlocksIsSmall(t *testing.T) {
	rt, source := open(t)
	var blocks []core.Block
	many := 20_000
	if testing.Short() {
		many /= 4
	}
	for range many {
		blocks = append(blocks, allocate(t, rt, 256, 0, "rows"))
	}
	began := time.Now()
	p := written(t, source)
	if len(p.Sample) > 32 {
		t.Errorf("%d samples of one tag", len(p.Sample))
	}
	t.Logf("a profile of %d blocks took %v", len(blocks), time.Since(began))
	free(t, rt, blocks...)
}

// BenchmarkTake takes a profile of 100 000 live blocks of 100 tags.
func BenchmarkTake(b *testing.B) {
	rt, err := fencepost.Open(context.Background(), fencepost.Config{Device: fencepost.Sim})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _, _ = rt.Close(context.Background()) })
	var blocks []core.Block
	for i := range 100_000 {
		block, err := rt.Allocate(context.Background(), core.Request{Bytes: 4096, Tag: core.Tag('a' + rune(i%100))})
		if err != nil {
			b.Fatal(err)
		}
		blocks = append(blocks, block)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := profile.Take(profile.Source{Resource: rt.Core().Resource()}); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	for _, block := range blocks {
		if _, err := rt.Deallocate(context.Background(), block.ID); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSampled counts an allocation whose stack is kept.
func BenchmarkSampled(b *testing.B) {
	rt, err := fencepost.Open(context.Background(), fencepost.Config{Device: fencepost.Sim})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _, _ = rt.Close(context.Background()) })
	a, stack := profile.NewAllocations(core.Base(rt.Core().Resource())), core.CaptureStack(0)
	b.ReportAllocs()
	for b.Loop() {
		a.Sampled(4096, "rows", stack)
	}
}
