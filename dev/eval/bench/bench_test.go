package bench

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
)

// BenchmarkPair is an allocation and its free: through the bare backend, with
// each decorator alone, and through runtimes of services.
func BenchmarkPair(b *testing.B) {
	run := func(name string, open func(*testing.B) *stack) {
		b.Run(name, func(b *testing.B) {
			s := open(b)
			stream, ctx := s.lease(b).ID(), s.ctx
			b.ReportAllocs()
			for b.Loop() {
				if err := s.pair(ctx, stream); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	for _, c := range ways {
		run(c.name, func(b *testing.B) *stack { return c.open(b, nothing(), fencepost.Async) })
	}
	for _, c := range []struct {
		name  string
		layer core.Layer
	}{
		{"logging", ring}, {"budget", limit}, {"guard=off", guardOff}, {"guard=ledger", guardLedger}, {"telemetry", counted},
	} {
		run(c.name, func(b *testing.B) *stack { return open(b, c.layer) })
	}
}

// BenchmarkPoolPair is the pair over the runtime's own pool, with 1 and with 1000 blocks
// alive that are freed in order.
func BenchmarkPoolPair(b *testing.B) {
	for _, c := range ways {
		for _, live := range []int{1, 1000} {
			b.Run(fmt.Sprintf("%s/live=%d", c.name, live), func(b *testing.B) {
				s := c.open(b, nothing(), fencepost.Pool)
				stream, ctx := s.lease(b).ID(), s.ctx
				ring := make([]core.BlockID, live)
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					at := &ring[i%live]
					if at.Generation != 0 {
						if _, err := s.runtime.Deallocate(ctx, *at); err != nil {
							b.Fatal(err)
						}
					}
					block, err := s.runtime.Allocate(ctx, core.Request{Bytes: 4096, Stream: stream, Tag: "bench"})
					if err != nil {
						b.Fatal(err)
					}
					*at = block.ID
				}
			})
		}
	}
}

// BenchmarkUnsampled is a pair over the runtime's own pool, and a launch that writes one block of
// its own stream, in each way to sample nothing: what tracing costs a service that samples little.
func BenchmarkUnsampled(b *testing.B) {
	for _, c := range unsampled {
		run := func(name string, op func(*stack, core.StreamID, []core.Use) error) {
			b.Run(name+"/"+c.name, func(b *testing.B) {
				s := service(b, nothing(), over(fencepost.Pool), func(cfg *fencepost.Config) { cfg.TracerProvider = c.provider })
				stream := s.lease(b).ID()
				uses := blocks(b, s, stream, 1)
				b.ReportAllocs()
				for b.Loop() {
					if err := op(s, stream, uses); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		run("pair", func(s *stack, stream core.StreamID, _ []core.Use) error { return s.pair(c.ctx, stream) })
		run("launch", func(s *stack, stream core.StreamID, uses []core.Use) error {
			return s.runtime.Launch(c.ctx, stream, uses, func(context.Context) error { return nil })
		})
	}
}

// BenchmarkPairOn is the pair from one and from two goroutines, each on a
// stream of its own; all pairs count.
func BenchmarkPairOn(b *testing.B) {
	for _, c := range ways {
		for _, goroutines := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/goroutines=%d", c.name, goroutines), func(b *testing.B) {
				pairs(b, c.open(b, nothing(), fencepost.Async), goroutines)
			})
		}
	}
}

func pairs(b *testing.B, s *stack, goroutines int) {
	var streams []core.StreamID
	for range goroutines {
		streams = append(streams, s.lease(b).ID())
	}
	var group sync.WaitGroup
	b.ResetTimer()
	for g := range goroutines {
		group.Go(func() {
			ctx := s.ctx
			for range b.N / goroutines {
				if err := s.pair(ctx, streams[g]); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
}

// BenchmarkLaunch is the fencing of one launch with 1 and with 8 blocks: on
// their own stream, and last written on another one.
func BenchmarkLaunch(b *testing.B) {
	for _, count := range []int{1, 8} {
		for _, streams := range []int{1, 2} {
			for _, c := range ways {
				b.Run(fmt.Sprintf("blocks=%d/streams=%d/%s", count, streams, c.name), func(b *testing.B) {
					launches(b, c.open(b, nothing(), fencepost.Async), count, streams)
				})
			}
		}
	}
}

func launches(b *testing.B, s *stack, count, streams int) {
	ids := []core.StreamID{s.lease(b).ID(), s.lease(b).ID()}
	uses := blocks(b, s, ids[0], count)
	nothing := func(context.Context) error { return nil }
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if err := s.runtime.Launch(s.ctx, ids[i%streams], uses, nothing); err != nil {
			b.Fatal(err)
		}
	}
}

func blocks(tb testing.TB, s *stack, stream core.StreamID, n int) []core.Use {
	tb.Helper()
	var uses []core.Use
	for range n {
		block, err := s.runtime.Allocate(context.Background(), core.Request{Bytes: 4096, Stream: stream})
		if err != nil {
			tb.Fatal(err)
		}
		uses = append(uses, core.Use{Block: block.ID, Access: core.Write})
	}
	return uses
}
