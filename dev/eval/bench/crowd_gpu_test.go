package bench

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
)

// BenchmarkGPUCrowd is the work of many goroutines, each on streams of its
// own: allocations and frees, and launches that alternate between two streams.
func BenchmarkGPUCrowd(b *testing.B) {
	g := openGPU(b)
	for _, goroutines := range []int{1, 2, 4, 8, 16} {
		b.Run(fmt.Sprintf("pairs/goroutines=%d", goroutines), func(b *testing.B) {
			pairs(b, service(b, g), goroutines)
		})
	}
	for _, goroutines := range []int{1, 2, 4, 8} {
		b.Run(fmt.Sprintf("fences/goroutines=%d", goroutines), func(b *testing.B) {
			fencesOf(b, service(b, g), goroutines)
		})
	}
}

// fencesOf fences b.N launches of one block in all.
func fencesOf(b *testing.B, s *stack, goroutines int) {
	type worker struct {
		ids  [2]core.StreamID
		uses []core.Use
	}
	var workers []worker
	for range goroutines {
		w := worker{ids: [2]core.StreamID{s.lease(b).ID(), s.lease(b).ID()}}
		w.uses = blocks(b, s, w.ids[0], 1)
		workers = append(workers, w)
	}
	var group sync.WaitGroup
	b.ResetTimer()
	for _, w := range workers {
		group.Go(func() {
			ctx, nothing := s.ctx, func(context.Context) error { return nil }
			for i := range b.N / goroutines {
				if err := s.runtime.Launch(ctx, w.ids[i%2], w.uses, nothing); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
}
