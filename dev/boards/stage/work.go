package main

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// slowDriver is one whose allocations can be made to take longer. It is safe for
// concurrent use.
type slowDriver struct {
	driver.Driver
	by atomic.Int64
}

var _ driver.Wrapper = (*slowDriver)(nil)

// Unwrap returns the device.
func (d *slowDriver) Unwrap() driver.Driver { return d.Driver }

// MemAllocAsync allocates after a while.
func (d *slowDriver) MemAllocAsync(bytes uint64, pool driver.Pool, s driver.Stream) (uint64, error) {
	time.Sleep(time.Duration(d.by.Load()))
	return d.Driver.MemAllocAsync(bytes, pool, s)
}

var workScenes = []scene{
	{name: "quiet", act: func(*steps) {}},
	{name: "idle", idle: true, act: func(*steps) {}},
	{name: "end", act: func(s *steps) { s.ended.Store(true) }}, // and is scraped no more
	{name: "work", configure: traced, act: work},
	{name: "slow", act: func(s *steps) { s.slow.by.Store(int64(30 * time.Millisecond)) }},
	// One stream writes and another reads twice: of the reads the first needs a
	// wait and the second none.
	{name: "cross", act: func(s *steps) {
		x, y, b := s.pair()
		s.loop(quick, func(s *steps) {
			defer s.stall(x)() // or the write would be seen done
			s.fill(x, b)
			for range 2 {
				s.launch(y, b, core.Read, func() error { return s.rt.Driver().CopyToHostAsync(make([]byte, 64), b.ID.Ptr, y.Handle()) })
			}
		})
	}},
	// What one stream writes takes the device a while, and another stream waits for it.
	{name: "device", configure: timeAll, act: func(s *steps) { s.loop(quick, s.turns("merge", "query")) }},
	{name: "names", configure: timeAll, act: func(s *steps) { // more of them than a panel has lines
		for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
			s.loop(quick, s.turns("merge "+name, "query "+name))
		}
	}},
	{name: "abort", act: func(s *steps) {
		x, _, b := s.pair()
		s.loop(quick, func(s *steps) {
			s.launch(x, b, core.Write, func() error { return core.NotEnqueued(errors.New("the scene aborts its launches")) })
		})
	}},
	// More operations than a panel has lines, all of them a few times a second.
	{name: "various", act: func(s *steps) {
		x, _, b := s.pair()
		s.loop(beat, func(s *steps) {
			s.launch(x, b, core.Write, func() error { return core.NotEnqueued(errors.New("the scene aborts its launches")) })
			s.err = nil
			claim := get(s, func() (core.Claim, error) { return s.rt.Reserve(s.ctx, mib, "various") })
			s.try(func() error { return s.rt.ReleaseClaim(s.ctx, claim.ID) })
		})
	}},
	{name: "intent", act: func(s *steps) { // a launch that never ends
		x, _, b := s.pair()
		s.prepare(x, b, core.Read)
	}},
	// Launches stay outstanding, each of a block of its own: their events cannot
	// be given up before the stream goes on.
	{name: "readers", act: func(s *steps) {
		x := s.lease("held")
		s.stall(x)
		for range 50 {
			s.fill(x, s.allocate(x, "read", beatBytes))
		}
	}},
}

// longWork is what the device takes for the launches of a scene.
const longWork = 20 * time.Millisecond

func timeAll(_ *player, cfg *fencepost.Config) { cfg.TimeOneIn = 1 }

// turns is one launch that takes the device some time, and another that waits for it.
func (s *steps) turns(first, second string) func(*steps) {
	x, y, b := s.pair()
	return func(s *steps) {
		var end func()
		s.named(first, x, b, core.Write, func() error {
			end = s.stall(x)
			return s.rt.Driver().MemsetAsync(b.ID.Ptr, 1, 64, x.Handle())
		})
		s.named(second, y, b, core.Read, func() error { return s.rt.Driver().CopyToHostAsync(make([]byte, 64), b.ID.Ptr, y.Handle()) })
		time.Sleep(longWork)
		if end != nil {
			end()
		}
	}
}

// work does what goes on anyway three times as often. On a busy machine a pause
// takes longer; what was to be done meanwhile is made up for.
func work(s *steps) {
	on := s.lease("work")
	begin, done := time.Now(), time.Duration(0)
	s.loop(quick, func(s *steps) {
		for ; done <= time.Since(begin)/quick && s.ctx.Err() == nil && s.err == nil; done++ {
			s.others.busy()
			s.once(on, "work", beatBytes)
		}
	})
}

// pair leases two streams and allocates a block on the first.
func (s *steps) pair() (x, y *cuda.Lease, b core.Block) {
	x, y = s.lease("first"), s.lease("second")
	return x, y, s.allocate(x, "shared", mib)
}
