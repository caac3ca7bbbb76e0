package demo

import (
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/examples/service/kernels"
	"github.com/fencepost-gpu/fencepost/internal/workload"
)

// freed plants a victim that was used and given back, and then misuses it. On the
// simulated device the free is still pending by then: had the device passed it, the
// memory could be another stream's, and its oracle would name another bug.
func (p *Plant) freed(ctx context.Context, misuse func(core.Block, *cuda.Lease) error) error {
	return p.onStream(ctx, func(on *cuda.Lease) error {
		b, err := p.victimOn(ctx, on)
		if err != nil {
			return err
		}
		release, err := p.occupy(on)
		if err != nil {
			return err
		}
		defer release()
		if _, err := p.rt.Deallocate(ctx, b.ID); err != nil {
			return err
		}
		err = misuse(b, on)
		release()
		return errors.Join(err, p.rt.Streams().Synchronize(ctx, on.ID()))
	})
}

// plantUseAfterFreeWrite lets a launch that declares a block of its own write the victim
// too, by a pointer that it kept.
func plantUseAfterFreeWrite(ctx context.Context, p *Plant) error {
	misused := p.freed
	if p.unmapping() {
		misused = p.unmapped
	}
	return p.onStream(ctx, func(y *cuda.Lease) error {
		own, err := p.allocateOn(ctx, y) // on the victim's stream it could get its memory
		if err != nil {
			return err
		}
		err = misused(ctx, func(victim core.Block, on *cuda.Lease) error {
			p.answered(p.writeLate(ctx, own, victim.ID.Ptr+4096, on))
			return nil
		})
		return errors.Join(err, p.giveBack(ctx, []core.Block{own}))
	})
}

func (p *Plant) writeLate(ctx context.Context, own core.Block, kept uint64, on *cuda.Lease) error {
	req := core.UseRequest{Stream: on.ID(), Launch: "inject.late", Uses: []core.Use{{Block: own.ID, Access: core.Write}}, Pointers: []uint64{own.ID.Ptr, kept}}
	return p.rt.Core().LaunchWith(ctx, req, func(context.Context) error {
		drv := p.rt.Driver()
		return errors.Join(drv.MemsetAsync(own.ID.Ptr, 0x42, own.Requested, on.Handle()), drv.MemsetAsync(kept, 0x42, 64, on.Handle()))
	})
}

// plantUseAfterFreeRead reads a victim that was given back: by a kernel where a hunt has taken its memory off the map, which
// then names the access, and else by a copy.
func plantUseAfterFreeRead(ctx context.Context, p *Plant) error {
	if p.unmapping() {
		return p.unmapped(ctx, func(victim core.Block, on *cuda.Lease) error { return p.readUnmapped(ctx, victim, on) })
	}
	return p.freed(ctx, func(b core.Block, on *cuda.Lease) error {
		return p.rt.Driver().CopyToHostAsync(make([]byte, 64), b.ID.Ptr, on.Handle())
	})
}

// unmapping reports whether a hunt takes freed blocks off the map, and notes that for the
// judgement.
func (p *Plant) unmapping() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unmaps = strings.Contains(string(p.rt.GuardStatus().Setting), "unmap")
	return p.unmaps
}

// unmapped plants a victim that was used and given back, waits until the hunt has taken its memory
// off the map, and then misuses it.
func (p *Plant) unmapped(ctx context.Context, misuse func(core.Block, *cuda.Lease) error) error {
	return p.onStream(ctx, func(on *cuda.Lease) error {
		// also where the hunt has no more room to isolate
		victim, err := p.rt.Allocate(ctx, core.Request{Bytes: plantBytes, Stream: on.ID(), Tag: p.tag(), Isolated: true})
		if err != nil {
			return err
		}
		if err := p.use(ctx, victim, on); err != nil {
			return err
		}
		if _, err := p.rt.Deallocate(ctx, victim.ID); err != nil {
			return err
		}
		for p.rt.Core().State(victim.ID) != core.Freed {
			if err := errors.Join(p.rt.ReapPending(ctx), ctx.Err()); err != nil {
				return err
			}
			time.Sleep(time.Millisecond)
		}
		return misuse(victim, on)
	})
}

// readUnmapped counts the digits of a victim that is not there any more, into a block of its own.
func (p *Plant) readUnmapped(ctx context.Context, victim core.Block, on *cuda.Lease) error {
	module, err := workload.Load(p.rt.Driver())
	if err != nil {
		return err
	}
	k, err := kernels.Find(module)
	if err != nil {
		return err
	}
	own, err := p.allocateOn(ctx, on)
	if err != nil {
		return err
	}
	const digits = 256
	err = k.Histogram.Launch(ctx, p.rt, on, cuda.Blocks1D(digits, digits), []core.Use{{Block: own.ID, Access: core.Write}},
		driver.Ptr(victim.ID.Ptr), driver.Ptr(own.ID.Ptr), driver.U32(plantBytes/4), driver.U32(0))
	p.answered(errors.Join(err, p.rt.Streams().Synchronize(ctx, on.ID())))
	return nil
}

func plantDoubleFree(ctx context.Context, p *Plant) error {
	return p.freed(ctx, func(b core.Block, _ *cuda.Lease) error {
		_, err := p.rt.Deallocate(ctx, b.ID)
		p.answered(err)
		return nil
	})
}

func plantStaleHandle(ctx context.Context, p *Plant) error {
	return p.freed(ctx, func(b core.Block, on *cuda.Lease) error {
		p.answered(p.rt.LaunchNamed(ctx, "inject.stale", on.ID(), []core.Use{{Block: b.ID, Access: core.Read}}, func(context.Context) error {
			return errors.New("the launch was let through")
		}))
		return nil
	})
}

func plantOutOfBounds(ctx context.Context, p *Plant) error {
	return p.overrun(ctx, func(b core.Block) uint64 { return b.ID.Ptr + b.Requested })
}

// plantOutOfBoundsRead copies the 16 bytes behind a block out, in a launch that declares a read of
// the block.
func plantOutOfBoundsRead(ctx context.Context, p *Plant) error {
	behind := func(b core.Block) uint64 { return b.ID.Ptr + b.Requested }
	return p.beside(ctx, core.Read, behind, func(at uint64, on *cuda.Lease) error {
		return p.rt.Driver().CopyToHostAsync(make([]byte, 16), at, on.Handle())
	})
}

func plantUnderflow(ctx context.Context, p *Plant) error {
	return p.overrun(ctx, func(b core.Block) uint64 { return b.ID.Ptr - 16 })
}

// overrunBlocks is among how many blocks an overrun looks for two that are neighbours.
const overrunBlocks = 32

// overrun lets a declared launch write 16 bytes beside its block.
func (p *Plant) overrun(ctx context.Context, where func(core.Block) uint64) error {
	return p.beside(ctx, core.Write, where, func(at uint64, on *cuda.Lease) error {
		return p.rt.Driver().MemsetAsync(at, 0x42, 16, on.Handle())
	})
}

// beside lets a launch that declares an access of a block reach beside it. Many blocks are
// allocated first: where a guard leaves no room the victim is one beside which another of
// them lies, so that a write spoils no results.
func (p *Plant) beside(ctx context.Context, declared core.Access, where func(core.Block) uint64,
	reach func(at uint64, on *cuda.Lease) error) error {
	return p.onStream(ctx, func(on *cuda.Lease) error {
		var blocks []core.Block
		for range overrunBlocks {
			b, err := p.allocateOn(ctx, on)
			if err != nil {
				return errors.Join(err, p.giveBack(ctx, blocks))
			}
			blocks = append(blocks, b)
		}
		b := besideAnother(blocks, where)
		err := p.use(ctx, b, on)
		if err == nil {
			err = p.rt.LaunchNamed(ctx, "inject.overrun", on.ID(), []core.Use{{Block: b.ID, Access: declared}},
				func(context.Context) error {
					return reach(where(b), on)
				})
		}
		// what a copy goes to stays until then
		return errors.Join(err, p.rt.Streams().Synchronize(ctx, on.ID()), p.giveBack(ctx, blocks))
	})
}

// besideAnother is a block for which what where says lies in another, if there is one.
func besideAnother(blocks []core.Block, where func(core.Block) uint64) core.Block {
	for _, b := range blocks {
		for _, other := range blocks {
			if where(b)-other.ID.Ptr < other.Requested {
				return b
			}
		}
	}
	return blocks[len(blocks)/2]
}

func (p *Plant) giveBack(ctx context.Context, blocks []core.Block) error {
	var errs []error
	for _, b := range blocks {
		_, err := p.rt.Deallocate(ctx, b.ID)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// plantForeignFree frees memory that was allocated around the runtime.
func plantForeignFree(ctx context.Context, p *Plant) error {
	ptr, err := p.rt.Driver().MemAlloc(plantBytes)
	if err != nil {
		return err
	}
	foreign := core.BlockID{Ptr: ptr, Generation: core.NextGeneration(), Ordinal: p.rt.Ordinal()}
	p.note(core.Block{ID: foreign})
	_, answer := p.rt.Deallocate(ctx, foreign)
	p.answered(answer)
	return p.rt.Driver().MemFree(ptr)
}

// plantMissingFence uses on one stream, undeclared, what another writes.
func plantMissingFence(ctx context.Context, p *Plant) error { return p.undeclared(ctx, p.victimOn) }

// plantUseBeforeAlloc uses on one stream, undeclared, what another has only
// begun to allocate.
func plantUseBeforeAlloc(ctx context.Context, p *Plant) error {
	return p.undeclared(ctx, func(ctx context.Context, on *cuda.Lease) (core.Block, error) {
		b, err := p.allocateOn(ctx, on)
		p.note(b)
		return b, err
	})
}

// undeclared makes a victim on one stream, and writes it on another.
func (p *Plant) undeclared(ctx context.Context, victim func(context.Context, *cuda.Lease) (core.Block, error)) error {
	return p.onStream(ctx, func(x *cuda.Lease) error {
		return p.onStream(ctx, func(y *cuda.Lease) error {
			release, err := p.occupy(x)
			if err != nil {
				return err
			}
			defer release()
			b, err := victim(ctx, x)
			if err != nil {
				return err
			}
			err = p.rt.Driver().MemsetAsync(b.ID.Ptr, 2, b.Requested, y.Handle())
			err = errors.Join(err, p.rt.Streams().Synchronize(ctx, y.ID()))
			release()
			_, freeErr := p.rt.Deallocate(ctx, b.ID)
			return errors.Join(err, freeErr)
		})
	})
}

// occupy keeps a stream of the simulated device from running what is enqueued
// on it until release is called. Otherwise the host may have seen it complete
// when the next call is made, which is an order, and there would be no bug.
// On a GPU this kind is not seen, and nothing is held.
func (p *Plant) occupy(on *cuda.Lease) (release func(), err error) {
	device, ok := driver.Unwrap(p.rt.Driver()).(*sim.Device)
	if !ok {
		return func() {}, nil
	}
	return device.Hold(on.Handle())
}

func plantLeak(ctx context.Context, p *Plant) error {
	return p.onStream(ctx, func(on *cuda.Lease) error {
		_, err := p.victimOn(ctx, on)
		return err
	})
}

// plantOutOfMemory sets the budget beyond what the device has, the mistake
// behind most real ones, and asks for more than there is.
func plantOutOfMemory(ctx context.Context, p *Plant) error {
	limit := p.rt.Stats().Limit
	p.rt.Budget().SetLimit(math.MaxUint64)
	p.note(core.Block{Tag: p.tag()})
	_, answer := p.rt.Allocate(ctx, core.Request{Bytes: 1 << 46, Tag: p.tag()})
	p.answered(answer)
	p.rt.Budget().SetLimit(limit)
	return nil
}

// plantStickyError launches a kernel with a wild pointer.
func plantStickyError(ctx context.Context, p *Plant) error {
	module, err := workload.Load(p.rt.Driver())
	if err != nil {
		return err
	}
	kernel, err := module.Kernel(kernels.ClearName)
	if err != nil {
		return err
	}
	return p.onStream(ctx, func(on *cuda.Lease) error {
		b, err := p.allocateOn(ctx, on)
		if err != nil {
			return err
		}
		wild := driver.Ptr(0x10)
		err = kernel.Launch(ctx, p.rt, on, cuda.Blocks1D(256, 256), []core.Use{{Block: b.ID, Access: core.Write}}, wild, driver.U32(256))
		p.answered(errors.Join(err, p.rt.Streams().Synchronize(ctx, on.ID())))
		return nil
	})
}
