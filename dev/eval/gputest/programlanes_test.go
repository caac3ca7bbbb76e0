package gputest

import (
	"slices"

	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// streamLane is a stream, with a counter that only its kernels add to: one for
// all would order them.
type streamLane struct {
	*cuda.Lease
	counter *words
	// external is the caller's stream under the lease; 0 for one of the pool.
	external driver.Stream
}

func (p *program) changeLanes() {
	if len(p.lanes) == programLanes {
		p.closeLane(p.rng.IntN(len(p.lanes)))
	}
	p.openLane(p.rng.IntN(4) == 0)
}

// openLane leases a stream, or brings one of the caller's.
func (p *program) openLane(external bool) {
	l := &streamLane{}
	var err error
	if external {
		l.external, err = p.b.Driver().StreamCreate()
		must(p.b, err)
		l.Lease, err = p.b.Streams().Adopt(l.external, "program.external")
	} else {
		l.Lease, err = p.b.Streams().Acquire(ctx, "program")
	}
	must(p.b, err)
	p.b.Cleanup(func() { _ = l.Release() }) // of a program that fails
	l.counter, err = p.b.counter(l.Lease)
	must(p.b, err)
	p.lanes, p.counters = append(p.lanes, l), append(p.counters, l.counter)
}

// closeLane gives a stream back with its work under way.
func (p *program) closeLane(i int) {
	l := p.lanes[i]
	must(p.b, l.Release())
	if l.external != 0 {
		must(p.b, p.b.Driver().StreamDestroy(l.external))
	}
	p.lanes = slices.Delete(p.lanes, i, i+1)
}

// end checks what is left, gives everything back and adds up what was wrong.
func (p *program) end() (wrong uint64) {
	if len(p.lanes) == 0 {
		p.openLane(false)
	}
	for _, v := range p.blocks {
		if l := p.lane(); v.value != 0 {
			must(p.b, p.b.doCheck(l.Lease, v.words, v.value, l.counter))
		}
		must(p.b, v.Free(ctx))
	}
	must(p.b, p.b.hw.Synchronize()) // without fences nothing else ends what adds to the counters
	for _, c := range p.counters {
		n, err := p.b.mismatches(p.lane().Lease, c)
		must(p.b, err)
		wrong += n
	}
	for len(p.lanes) > 0 {
		must(p.b, p.b.Streams().Synchronize(ctx, p.lanes[0].ID()))
		p.closeLane(0)
	}
	must(p.b, p.b.Drain(ctx))
	for _, d := range p.copies {
		wrong += d.finish(p.b)
	}
	return wrong
}

// finish counts the wrong words of a copy that has been done.
func (d *download) finish(b *bench) (wrong uint64) {
	for _, word := range d.to.Values() {
		if word != d.value {
			wrong++
		}
	}
	must(b, d.to.Free(ctx))
	return wrong
}
