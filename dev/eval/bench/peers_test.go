package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// peers runs each loop through a service's runtime, over the runtime's own pool and over the
// driver's. Names, sizes, counts and seeds are those of tools/peers/loops.hpp.
func peers(b *testing.B, drv func() driver.Driver, options ...func(*fencepost.Config)) {
	for _, loop := range slices.Concat(pairLoops(), quantileLoops(), sharingLoops(), launchLoops()) {
		for _, c := range []struct {
			name    string
			backend fencepost.Backend
		}{{"fencepost", fencepost.Pool}, {"fencepost-async", fencepost.Async}} {
			b.Run(loop.name+"/"+c.name, func(b *testing.B) {
				loop.run(b, service(b, drv(), append(options, over(c.backend))...))
			})
		}
	}
	b.Run(launchName(1, 1)+"/record", func(b *testing.B) {
		d := drv()
		stream, event := made(b, d.StreamCreate), made(b, d.EventCreate)
		for b.Loop() {
			check(b, d.EventRecord(event, stream))
		}
	})
}

// peerLoop is one loop of the comparison.
type peerLoop struct {
	name string
	run  func(*testing.B, *stack)
}

// listed is how many sizes a list has, a power of two.
const listed = 1024

// commonSizes are those that are measured each by itself, and in a mix.
var commonSizes = []uint64{256, 4 << 10, 64 << 10, 68 << 10, 1 << 20}

// congruential is a generator of the same random numbers as in C++.
type congruential uint64

func (c *congruential) next() uint64 {
	*c = *c*6364136223846793005 + 1442695040888963407
	return uint64(*c >> 33)
}

// mix takes the common sizes in random order.
func mix() []uint64 {
	r, sizes := congruential(1), make([]uint64, listed)
	for i := range sizes {
		sizes[i] = commonSizes[r.next()%uint64(len(commonSizes))]
	}
	return sizes
}

// spread takes sizes from 256 bytes to 4 MiB, each octave as often as another.
func spread() []uint64 {
	r, sizes := congruential(2), make([]uint64, listed)
	for i := range sizes {
		least := uint64(256) << (r.next() % 14)
		sizes[i] = least + r.next()%least
	}
	return sizes
}

// TestSizesAreThoseOfTheOtherAllocators pins the lists: loops.hpp makes the same.
func TestSizesAreThoseOfTheOtherAllocators(t *testing.T) {
	for name, c := range map[string]struct {
		sizes []uint64
		want  uint64
	}{"mix": {mix(), 122995183872}, "spread": {spread(), 247699951359}} {
		var sum uint64
		for i, bytes := range c.sizes {
			sum += uint64(i+1) * bytes
		}
		if len(c.sizes) != listed || sum != c.want {
			t.Errorf("%s: %d sizes, weighted sum %d, want %d", name, len(c.sizes), sum, c.want)
		}
	}
}

// blockRing is the live blocks of a goroutine: a step frees the oldest and allocates another.
type blockRing struct {
	s      *stack
	stream core.StreamID
	sizes  []uint64
	blocks []core.BlockID
	oldest int
	count  int
}

// newRing is a ring without blocks: its first steps only allocate. Its blocks are freed
// when the benchmark ends.
func newRing(b *testing.B, s *stack, stream core.StreamID, sizes []uint64, live int) *blockRing {
	r := &blockRing{s: s, stream: stream, sizes: sizes, blocks: make([]core.BlockID, live)}
	b.Cleanup(func() {
		for range live {
			check(b, r.drop(context.Background(), r.next()))
		}
	})
	return r
}

// fullRing is a ring with all its blocks.
func fullRing(b *testing.B, s *stack, stream core.StreamID, sizes []uint64, live int) *blockRing {
	r := newRing(b, s, stream, sizes, live)
	for range live {
		check(b, r.step(context.Background()))
	}
	return r
}

func (r *blockRing) step(ctx context.Context) error {
	at := r.next()
	if err := r.drop(ctx, at); err != nil {
		return err
	}
	return r.fill(ctx, at)
}

func (r *blockRing) next() *core.BlockID {
	at := &r.blocks[r.oldest]
	if r.oldest++; r.oldest == len(r.blocks) {
		r.oldest = 0
	}
	return at
}

func (r *blockRing) drop(ctx context.Context, at *core.BlockID) error {
	if at.Generation == 0 {
		return nil
	}
	_, err := r.s.runtime.Deallocate(ctx, *at)
	*at = core.BlockID{}
	return err
}

func (r *blockRing) fill(ctx context.Context, at *core.BlockID) error {
	bytes := r.sizes[r.count%listed]
	r.count++
	block, err := r.s.runtime.Allocate(ctx, core.Request{Bytes: bytes, Stream: r.stream, Tag: "bench"})
	*at = block.ID
	return err
}

// pairLoops are allocations and their frees, with one live block a goroutine (hot) and
// with a thousand that are freed in order (cold).
func pairLoops() (all []peerLoop) {
	type sizing struct {
		name string
		list []uint64
	}
	sizings := make([]sizing, 0, len(commonSizes)+1)
	for _, bytes := range commonSizes {
		sizings = append(sizings, sizing{fmt.Sprint(bytes), slices.Repeat([]uint64{bytes}, listed)})
	}
	sizings = append(sizings, sizing{"mix", mix()})
	for _, live := range []int{1, 1000} {
		for _, sizes := range sizings {
			for _, threads := range []int{1, 16} {
				all = append(all, peerLoop{fmt.Sprintf("pair/live=%d/bytes=%s/threads=%d", live, sizes.name, threads), func(b *testing.B, s *stack) {
					crowd(b, s, threads, func(int) func(context.Context) error {
						return fullRing(b, s, s.lease(b).ID(), sizes.list, live).step
					})
				}})
			}
		}
	}
	return all
}

// quantileLoops are how long allocations of many sizes take on sixteen goroutines, from
// the first one on: what the pool takes from the device is in it.
func quantileLoops() (all []peerLoop) {
	for _, quantile := range []float64{0.5, 0.999, 1} {
		all = append(all, peerLoop{fmt.Sprintf("allocation/quantile=%v", quantile), func(b *testing.B, s *stack) {
			times := allocationTimes(b, s, 16, 20000, 0)
			b.ReportMetric(float64(times[int(quantile*float64(len(times)-1))]), "ns/op")
		}})
	}
	return all
}

// allocationTimes are the times of all allocations of several goroutines, which pause before each, sorted.
func allocationTimes(b *testing.B, s *stack, goroutines, each int, pause time.Duration) []time.Duration {
	times, sizes := make([]time.Duration, goroutines*each), spread()
	var group sync.WaitGroup
	for mine := range slices.Chunk(times, each) {
		ring := newRing(b, s, s.lease(b).ID(), sizes, 64)
		group.Go(func() {
			ctx := s.ctx
			for i := range mine {
				at := ring.next()
				err := ring.drop(ctx, at)
				time.Sleep(pause)
				start := time.Now()
				if err == nil {
					err = ring.fill(ctx, at)
				}
				mine[i] = time.Since(start)
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	slices.Sort(times)
	return times
}

// sharingLoops are pairs of 4 KiB that share more than the pool: a stream, the blocks, or
// the leases.
func sharingLoops() (all []peerLoop) {
	sizes := slices.Repeat([]uint64{4 << 10}, listed)
	for _, threads := range []int{1, 16} {
		all = append(all,
			peerLoop{fmt.Sprintf("pair/stream=shared/threads=%d", threads), func(b *testing.B, s *stack) {
				shared := s.lease(b).ID()
				crowd(b, s, threads, func(int) func(context.Context) error { return fullRing(b, s, shared, sizes, 1).step })
			}},
			peerLoop{fmt.Sprintf("pair/stream=default/threads=%d", threads), func(b *testing.B, s *stack) {
				crowd(b, s, threads, func(int) func(context.Context) error { return fullRing(b, s, core.DefaultStream, sizes, 1).step })
			}},
			peerLoop{fmt.Sprintf("pair/stream=leased/threads=%d", threads), func(b *testing.B, s *stack) {
				crowd(b, s, threads, func(int) func(context.Context) error { return s.leasedPair })
			}})
	}
	return append(all, peerLoop{"pair/free=elsewhere/threads=16", freedElsewhere})
}

// leasedPair is a pair on a stream that is leased for it.
func (s *stack) leasedPair(ctx context.Context) error {
	l, err := s.streams.Acquire(ctx, "bench")
	if err != nil {
		return err
	}
	if err := s.pair(ctx, l.ID()); err != nil {
		return err
	}
	return l.Release()
}

// mailbox holds blocks that another goroutine is to free.
type mailbox struct {
	sync.Mutex
	blocks []core.BlockID
}

// freedElsewhere hands blocks of sixteen goroutines to the next one, 64 at a time.
func freedElsewhere(b *testing.B, s *stack) {
	const goroutines, batch = 16, 64
	boxes := make([]mailbox, goroutines)
	crowd(b, s, goroutines, func(g int) func(context.Context) error {
		to, from := &boxes[(g+1)%goroutines], &boxes[g]
		stream := s.lease(b).ID()
		var mine, theirs []core.BlockID
		b.Cleanup(func() {
			for _, id := range slices.Concat(mine, from.blocks) {
				_, err := s.runtime.Deallocate(context.Background(), id)
				check(b, err)
			}
		})
		return func(ctx context.Context) error {
			block, err := s.runtime.Allocate(ctx, core.Request{Bytes: 4 << 10, Stream: stream, Tag: "bench"})
			if err != nil {
				return err
			}
			if mine = append(mine, block.ID); len(mine) < batch {
				return nil
			}
			to.Lock()
			to.blocks = append(to.blocks, mine...)
			to.Unlock()
			mine = mine[:0]
			from.Lock()
			theirs, from.blocks = from.blocks, theirs[:0]
			from.Unlock()
			for _, id := range theirs {
				if _, err := s.runtime.Deallocate(ctx, id); err != nil {
					return err
				}
			}
			return nil
		}
	})
}

// launchLoops are the fences of launches that write blocks of their own stream, and
// blocks that were last written on another.
func launchLoops() (all []peerLoop) {
	for _, streams := range []int{1, 2} {
		for _, count := range []int{1, 8} {
			all = append(all, peerLoop{launchName(count, streams), func(b *testing.B, s *stack) { launches(b, s, count, streams) }})
		}
	}
	return all
}

func launchName(blocks, streams int) string {
	return fmt.Sprintf("launch/blocks=%d/streams=%d", blocks, streams)
}
