package cuda_test

import (
	"context"
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
)

// freeEvents are the rows of the first table.
var freeEvents = map[string]func(*freeCase){
	"a launch finishes, not the last": (*freeCase).finishOne,
	"the last launch finishes":        (*freeCase).finishLast,
	"the last launch is aborted": func(c *freeCase) {
		c.finishOne()
		t := c.tickets[0]
		c.tickets = nil
		must(c, c.Async.AbortUse(ctx, t))
	},
	"the last launch cannot be fenced": func(c *freeCase) {
		c.finishOne()
		t := c.tickets[0]
		c.tickets, c.poisoned = nil, true
		c.faults.FailMethod(drivertest.EventRecord, 1, driver.InvalidHandle)
		c.faults.FailMethod(drivertest.StreamSynchronize, 1, driver.InvalidHandle)
		c.refusedIf("the finish", true, c.Async.FinishUse(ctx, t))
		equal(c, "poisoned blocks", c.Async.Stats().Poisoned, uint64(len(c.blocks)))
	},
	"the stream's lock is free": func(c *freeCase) {
		if c.unlock == nil {
			c.Streams.LockStream(c.home.ID())()
		}
		c.unlockStream()
	},
	"the capture ends": func(c *freeCase) {
		if c.endCapture == nil && c.unlock == nil {
			c.capture()
		}
		c.clear(&c.endCapture)
		c.in(c.from)
		c.reap()
	},
	"the driver obliges": func(c *freeCase) {
		if c.from == "retry" {
			c.oblige()
			c.in(c.from)
		}
		c.reap()
	},
	"the device passes the mark": func(c *freeCase) {
		c.pass()
		c.in(c.from) // a look must see it
		c.reap()
	},
	"the device completes the uses": func(c *freeCase) {
		c.clear(&c.complete)
		c.in(c.from)
		c.reap()
	},
	"the unmap succeeds": func(c *freeCase) {
		if c.from == "unmap" {
			c.oblige()
			c.in(c.from)
		}
		c.reap()
	},
	"the stream is given up": (*freeCase).giveUpHome,
	"Close": func(c *freeCase) {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		err := c.Async.Close(ended)
		if c.endCapture != nil {
			misuse(c.T, "closing while frees wait for a capture", err)
		} else if c.refused {
			c.refusedIf("closing", true, err)
		}
		c.in(c.from)
		c.reap()
	},
	"the device is lost": func(c *freeCase) { c.lose() },
}

// giveUpHome gives the stream of the blocks up, and reaps.
func (c *freeCase) giveUpHome() {
	c.Helper()
	switch c.from {
	case "capture":
		misuse(c.T, "giving up a stream that captures", c.home.Release())
		return
	case "stream": // it is given up while the free waits for the lock
		c.anew()
		arrived, release := c.slow.stall(c.T, drivertest.EventRecord, true)
		released := make(chan error, 1)
		go func() { released <- c.home.Release() }()
		<-arrived
		c.deallocate()
		c.in("stream")
		release()
		must(c, errors.Join(<-released, <-c.done))
		c.done = nil
	default:
		must(c, c.home.Release())
	}
	c.gone = true
	c.reap()
}

// anew lets the free that waits for the stream go on, and puts a live block in its place.
func (c *freeCase) anew() {
	c.Helper()
	c.unlockStream()
	c.pass()
	c.drain()
	c.heard = nil
	c.blocks[0] = c.allocate(c.home)
	c.sync(c.home)
	c.launch(c.other, reads(c.blocks[0]))
	c.sync(c.other)
	c.holdHome()
}

// lose loses the device: no call hangs, and nothing moves.
func (c *freeCase) lose() {
	c.Helper()
	c.lost = true
	c.Sim.LoseContext(driver.IllegalAddress)
	_ = c.Async.ReapPending(ctx)
	_ = c.Async.TrimPool(0)
	bounded, cancel := within(20)
	defer cancel()
	_ = c.Async.Drain(bounded)
	for _, t := range c.tickets {
		c.refusedIf("a finish", true, c.Async.FinishUse(ctx, t))
	}
	c.tickets = nil
}

// cannotBeLaunched requires that no launch can come upon a retired block.
func (c *freeCase) cannotBeLaunched() {
	c.Helper()
	for _, b := range c.blocks {
		_, err := c.Async.PrepareUse(ctx, core.UseRequest{Stream: c.third.ID(), Uses: declared(reads(b))})
		useAfterFree(c, "a launch over a retired block", err)
		useAfterFree(c, "a recorded use of a retired block", c.Async.RecordUse(ctx, b.ID, c.third.ID()))
		_, err = c.Async.Deallocate(ctx, b.ID)
		useAfterFree(c, "a second free", err)
	}
}

// heldByALostDevice requires that nobody is told, and that no call hangs.
func (c *freeCase) heldByALostDevice(state string) {
	c.Helper()
	c.in(state)
	c.clear(&c.endCapture)
	if c.unlock != nil {
		c.clear(&c.unlock)
		c.refusedIf("the free", true, <-c.done)
		state = "live"
	}
	c.in(state)
}

func TestEveryEventMovesAFreeAsTheTableSays(t *testing.T) {
	eachFreeCell(t, "event", freeEvents, func(t *testing.T, kind freeKind, event func(*freeCase), name, from, cell string) {
		c := newFreeCase(t, kind, from, func(cfg *teststack.Config) {
			cfg.Dirty = name == "the device is lost" || name == "the last launch cannot be fenced"
		})
		if cell == "-" {
			c.cannotBeLaunched()
			cell = from
		} else {
			event(c)
		}
		if c.lost {
			c.heldByALostDevice(cell)
			return
		}
		c.in(cell)
		c.end()
	})
}

// freeLooks are the rows of the second table.
var freeLooks = map[string]func(*freeCase){
	"a reap":                    func(c *freeCase) { must(c, c.Async.ReapPending(ctx)) },
	"a trim":                    func(c *freeCase) { must(c, c.Async.TrimPool(0)) },
	"allocations of the stream": func(c *freeCase) { c.extra = append(c.extra, c.allocs(c.home, 32, 256)...) },
	"frees of the stream":       func(c *freeCase) { c.free(c.allocs(c.home, 16, 256)...); c.extra = []core.Block{} },
	"isolated allocations of it": func(c *freeCase) {
		for range 32 {
			c.extra = append(c.extra, c.isolate(c.home, 256))
		}
	},
}

func TestWhoLooksSeesWhatTheTableSays(t *testing.T) {
	eachFreeCell(t, "look", freeLooks, func(t *testing.T, kind freeKind, look func(*freeCase), name, from, cell string) {
		c := newFreeCase(t, kind, from)
		switch from {
		case "capture":
			c.clear(&c.endCapture)
		case "device":
			c.pass()
		case "uses":
			c.clear(&c.complete)
		default:
			c.oblige()
		}
		c.in(from)
		c.look(func() { look(c) })
		if c.isolated && cell == "released" && (name == "allocations of the stream" || name == "frees of the stream") {
			cell = "unmap"
		}
		c.in(cell)
		c.end()
	})
}

// freeAttempts are the rows of the third table: each puts what is in the way there, with
// what the block waited for out of it.
var freeAttempts = map[string]func(*freeCase){
	"nothing in the way": func(c *freeCase) { c.goOn() },
	"the stream captures": func(c *freeCase) {
		switch c.from {
		case "capture":
			return
		case "stream":
			c.anew()
			c.capture()
			c.unlock = c.Streams.LockStream(c.home.ID())
			c.deallocate()
			return
		}
		c.goOn()
		c.capture()
	},
	"the driver refuses": func(c *freeCase) { c.goOn(); c.refuse() },
	"the stream is locked": func(c *freeCase) {
		c.goOn()
		if c.unlock == nil {
			c.unlock = c.Streams.LockStream(c.home.ID())
		}
	},
	"the stream is given up": func(c *freeCase) {
		c.goOn()
		if c.from != "stream" {
			must(c, c.home.Release())
			c.gone = true
		}
	},
}

// goOn ends what parked blocks wait for.
func (c *freeCase) goOn() {
	c.clear(&c.endCapture)
	c.clear(&c.complete)
	if c.from == "retry" {
		c.oblige()
	}
}

func TestAnAttemptToQueueAFreeEndsAsTheTableSays(t *testing.T) {
	eachFreeCell(t, "attempt", freeAttempts, func(t *testing.T, kind freeKind, obstruct func(*freeCase), name, from, cell string) {
		c := newFreeCase(t, kind, from)
		if cell == "-" {
			misuse(t, "giving up a stream that captures", c.home.Release())
			c.end()
			return
		}
		obstruct(c)
		if from == "uses" && name == "the driver refuses" && !c.refused {
			cell = "device"
		}
		switch {
		case from == "launches":
			c.finishLast()
		case from == "stream" && name == "the stream is given up":
			c.giveUpHome()
		case name == "the stream is locked":
			c.waitsForTheLock(cell)
			cell = "device"
		case from == "stream" && c.refused:
			c.clear(&c.unlock)
			c.refusedIf("the free", true, <-c.done)
			c.done = nil
		case from == "stream":
			c.unlockStream()
		default:
			c.reap()
		}
		if name == "the stream is locked" {
			c.clear(&c.unlock)
		}
		c.in(cell)
		c.end()
	})
}

// waitsForTheLock has the stream locked while somebody attempts.
func (c *freeCase) waitsForTheLock(state string) {
	c.Helper()
	reaped := make(chan error, 1)
	go func() { reaped <- c.Async.ReapPending(ctx) }()
	c.in(state)
	c.unlockStream()
	must(c, <-reaped)
	must(c, c.Async.ReapPending(ctx)) // the other may have come before the free was parked
}

// A reap in a capture asks for one of the frees that wait for its end, not for all.
func TestAReapAsksOncePerStreamWhetherItCaptures(t *testing.T) {
	c := newFreeCase(t, freeKind{adopted: true}, "capture")
	before := c.faults.Calls(drivertest.StreamCapturing)
	must(t, c.Async.ReapPending(ctx))
	equal(t, "calls", c.faults.Calls(drivertest.StreamCapturing)-before, 1)
	c.in("capture")
	c.end()
}

// A stream that was given up is not forgotten while a free that the driver refuses waits
// with it, however long the device has been done with the stream: nobody would try again.
func TestAParkedFreeKeepsItsStreamFromBeingForgotten(t *testing.T) {
	c := newFreeCase(t, freeKind{adopted: true}, "retry")
	must(t, c.home.Release())
	c.gone = true
	c.pass()
	c.reap()
	c.in("retry")
	c.end()
}
