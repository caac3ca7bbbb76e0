package bench

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
)

// null is a variable so that the call is one through the interface, as in the
// runtime.
var null driver.Driver = &drivertest.Null{}

// BenchmarkFences is what fencing a launch costs beyond the one driver call
// that it makes: the preparation and the finish of a launch that writes blocks
// of its own stream, beside the record of an event.
func BenchmarkFences(b *testing.B) {
	for _, count := range []int{1, 8} {
		b.Run(fmt.Sprintf("blocks=%d/bare", count), func(b *testing.B) {
			drv := null
			event, _ := drv.EventCreate()
			stream, _ := drv.StreamCreate()
			b.ReportAllocs()
			for b.Loop() {
				if err := drv.EventRecord(event, stream); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("blocks=%d/fences", count), func(b *testing.B) {
			f := newFencer(b, service(b, nothing()), count)
			b.ReportAllocs()
			for b.Loop() {
				if err := f.launch(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkFencesOn is the same from several goroutines, each on a stream and
// blocks of its own; all launches count.
func BenchmarkFencesOn(b *testing.B) {
	for _, count := range []int{1, 8} {
		for goroutines := 1; goroutines <= min(runtime.GOMAXPROCS(0), 16); goroutines *= 2 {
			b.Run(fmt.Sprintf("blocks=%d/goroutines=%d", count, goroutines), func(b *testing.B) {
				fenceTogether(b, count, goroutines)
			})
		}
	}
}

// apart is how many unused blocks lie between those of two goroutines. Their
// records share no cache line, but a processor that walks the records of eight
// blocks fetches some lines more, and those are then somebody else's.
const apart = 64

func fenceTogether(b *testing.B, count, goroutines int) {
	s := service(b, nothing())
	var all []*fencer
	for range goroutines {
		all = append(all, newFencer(b, s, count))
		blocks(b, s, core.DefaultStream, apart)
	}
	start := make(chan struct{})
	var group sync.WaitGroup
	for _, f := range all {
		group.Go(func() {
			<-start
			for range b.N / goroutines {
				if err := f.launch(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	b.ResetTimer()
	close(start)
	group.Wait()
}

// fencer fences launches that write blocks of their own stream.
type fencer struct {
	runtime *core.Runtime
	ctx     context.Context
	request core.UseRequest
}

func newFencer(b *testing.B, s *stack, count int) *fencer {
	b.Helper()
	id := s.lease(b).ID()
	return &fencer{runtime: s.runtime, ctx: s.ctx, request: core.UseRequest{Stream: id, Uses: blocks(b, s, id, count)}}
}

func (f *fencer) launch() error {
	t, err := f.runtime.PrepareUse(f.ctx, f.request)
	if err != nil {
		return err
	}
	return f.runtime.FinishUse(f.ctx, t)
}
