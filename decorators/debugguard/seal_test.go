package debugguard_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// seal has a launch write the block, and seals it.
func (b *bench) seal(block core.Block) {
	b.Helper()
	b.launch("init", block.ID.AllocStream, func() { b.mem.poke(block.ID.Ptr, int(block.Bytes)) }, block)
	must.Do(b, b.guard.Seal(ctx, block.ID))
}

// read uses a block as one that only reads.
func (b *bench) read(name string, stream core.StreamID, work func(), block core.Block) {
	b.Helper()
	t := must.Get(b.guard.PrepareUse(ctx, core.UseRequest{Stream: stream, Launch: name, Uses: []core.Use{{Block: block.ID, Access: core.Read}}}))(b)
	work()
	b.finish(t)
}

// sampled is a guard that guards no block by itself.
func sampled(c *debugguard.Config) { c.SampleBytes = 1 << 60 }

func TestAnUndeclaredWriteToASealedBlockIsFoundByItsChecksum(t *testing.T) {
	for _, mode := range []debugguard.Mode{debugguard.Sample, debugguard.Hunt} {
		for name, end := range map[string]func(*bench, core.Block) error{
			"unseal": func(b *bench, block core.Block) error { return b.guard.Unseal(ctx, block.ID) },
			"check":  func(b *bench, _ core.Block) error { return b.guard.CheckSeals(ctx) },
			"free":   func(*bench, core.Block) error { return nil },
			"reseal": func(b *bench, block core.Block) error { return b.guard.Seal(ctx, block.ID) },
		} {
			t.Run(fmt.Sprint(mode, " ", name), func(t *testing.T) {
				b := newBench(t, mode, sampled)
				block := b.alloc(100_000)
				b.seal(block)
				b.read("good", 1, func() {}, block)
				b.read("bad", 1, func() { b.mem.poke(block.ID.Ptr+50_000, 1) }, block)
				must.Do(t, end(b, block))
				if name != "free" {
					b.launch("late", 1, func() {}) // after the comparison
				}
				b.free(block)
				b.empty()
				f := b.want(names.FindingSealedWrite)[0]
				if got := launchesOf(f.Suspects); !slices.Contains(got, "bad") || slices.Contains(got, "init") || slices.Contains(got, "late") {
					t.Errorf("suspects %v", got)
				}
				if f.Victim.ID != block.ID || f.Offset > 50_000 || f.Offset+4096 <= 50_000 || !errors.Is(f.Err, core.ErrStreamMisuse) {
					t.Errorf("finding %+v", f)
				}
			})
		}
	}
}

func TestADeclaredWriteToASealedBlockIsFoundAtOnce(t *testing.T) {
	for _, mode := range []debugguard.Mode{debugguard.Ledger, debugguard.Sample, debugguard.Hunt} {
		b := newBench(t, mode, sampled)
		block := b.alloc(64)
		b.seal(block)
		b.read("reader", 2, func() {}, block)
		b.want()
		b.launch("writer", 2, func() { b.mem.poke(block.ID.Ptr, 64) }, block)
		f := b.want(names.FindingSealedWrite)[0]
		if !slices.Equal(launchesOf(f.Suspects), []string{"writer"}) || f.Victim.ID != block.ID || !strings.Contains(f.Text, "_test.go") {
			t.Errorf("finding %v", f)
		}
		b.launch("writer", 2, func() { b.mem.poke(block.ID.Ptr, 64) }, block)
		b.free(block)
		b.empty()
		b.want() // one is enough, and the bytes changed with notice
	}
}

func TestADeclaredWriteToASealedBlockIsRefusedWhereThatIsThePolicy(t *testing.T) {
	b := newBench(t, debugguard.Sample, sampled, func(c *debugguard.Config) { c.Advanced.Refuse = true })
	block := b.alloc(64)
	b.seal(block)
	write := core.UseRequest{Stream: 2, Launch: "writer", Uses: []core.Use{{Block: block.ID, Access: core.Write}}}
	for range 2 {
		expect.ErrorOf(b.guard.PrepareUse(ctx, write))(t, core.ErrStreamMisuse, "the write was not refused")
	}
	b.want(names.FindingSealedWrite, names.FindingSealedWrite)
	must.Do(t, b.guard.Unseal(ctx, block.ID))
	b.launch("writer", 2, func() { b.mem.poke(block.ID.Ptr, 64) }, block)
	b.free(block)
	b.empty()
	b.want()
}

func TestBisectingNamesTheLaunchThatBrokeTheSeal(t *testing.T) {
	b := newBench(t, debugguard.Hunt, bisecting)
	block := b.alloc(10_000)
	b.seal(block)
	for i := range 20 {
		name := "good"
		if i == 11 {
			name = "bad"
		}
		b.read(name, 1, func() {
			if name == "bad" {
				b.mem.poke(block.ID.Ptr+9_999, 1)
			}
		}, block)
	}
	b.free(block)
	b.empty()
	if f := b.want(names.FindingSealedWrite)[0]; !slices.Equal(launchesOf(f.Suspects), []string{"bad"}) || f.Offset != 8192 {
		t.Errorf("suspects %v at %d", launchesOf(f.Suspects), f.Offset)
	}
}

func TestSealsWithoutABug(t *testing.T) {
	b := newBench(t, debugguard.Off)
	early := b.alloc(64)
	b.seal(early) // nobody watches
	b.mode(debugguard.Hunt)
	b.seal(early) // nobody knows it
	b.launch("writer", 1, func() { b.mem.poke(early.ID.Ptr, 64) }, early)
	block, kept := b.alloc(5000), b.alloc(64)
	for range 3 {
		b.launch("writer", 1, func() { b.mem.poke(block.ID.Ptr, 5000) }, block)
		b.seal(block)
		if err := b.guard.Seal(ctx, block.ID); err != nil { // anew
			t.Fatal(err)
		}
		b.read("reader", 2, func() {}, block)
		must.Do(t, b.guard.CheckSeals(ctx), b.guard.Unseal(ctx, block.ID), b.guard.Unseal(ctx, block.ID))
	}
	b.seal(kept)
	b.mode(debugguard.Off)
	b.launch("writer", 1, func() { b.mem.poke(kept.ID.Ptr, 64) }, kept)
	b.mode(debugguard.Hunt)
	must.Do(t, b.guard.CheckSeals(ctx))
	for _, block := range []core.Block{early, block, kept} {
		b.free(block)
	}
	b.empty()
	b.want()
	if err := b.guard.Unseal(ctx, block.ID); err != nil {
		t.Errorf("unsealing what is gone: %v", err)
	}
}

func TestSealRefusesWhatCannotBeSealed(t *testing.T) {
	b := newBench(t, debugguard.Hunt)
	block, gone := b.alloc(64), b.alloc(64)
	b.free(gone)
	expect.Error(t, b.guard.Seal(ctx, gone.ID), core.ErrUseAfterFree, "a freed block")
	b.want(names.FindingStaleHandle)
	elsewhere := block.ID
	elsewhere.Ordinal++
	expect.Error(t, b.guard.Seal(ctx, elsewhere), core.ErrStreamMisuse, "another device's block")
	unknown := block.ID
	unknown.Generation = core.NextGeneration()
	expect.Error(t, b.guard.Seal(ctx, unknown), core.ErrUseAfterFree, "a block that never was")
	open := b.prepare("writer", 1, block)
	expect.Error(t, b.guard.Seal(ctx, block.ID), core.ErrStreamMisuse, "a block that is being written")
	b.finish(open)
	for _, op := range []string{"PrepareUse", "FinishUse"} {
		b.fake.FailNext(op, errDevice)
		if err := b.guard.Seal(ctx, block.ID); !errors.Is(err, core.ErrDriver) {
			t.Errorf("%s failed: %v", op, err)
		}
	}
	b.launch("writer", 1, func() { b.mem.poke(block.ID.Ptr, 64) }, block) // it is not sealed
	b.free(block)
	b.empty()
	b.want()
}

func TestAFreeThatFailsLeavesTheBlockSealed(t *testing.T) {
	b := newBench(t, debugguard.Sample, sampled)
	block := b.alloc(64)
	b.seal(block)
	b.fake.FailNext("Deallocate", errDevice)
	if _, err := b.guard.Deallocate(ctx, block.ID); !errors.Is(err, core.ErrDriver) {
		t.Fatal(err)
	}
	b.mem.poke(block.ID.Ptr, 1)
	b.free(block)
	b.empty()
	b.want(names.FindingSealedWrite)
}

func TestASealedBlockFreedDuringALaunchIsComparedBehindIt(t *testing.T) {
	b := newBench(t, debugguard.Hunt)
	block := b.alloc(64)
	b.seal(block)
	open := must.Get(b.guard.PrepareUse(ctx, core.UseRequest{Stream: 1, Launch: "reader", Uses: []core.Use{{Block: block.ID, Access: core.Read}}}))(t)
	b.free(block)
	b.mem.poke(block.ID.Ptr, 1)
	b.finish(open)
	b.empty()
	b.want(names.FindingSealedWrite)
}

func TestSealHammer(t *testing.T) {
	b := newBench(t, debugguard.Hunt, bisecting)
	rounds := 60
	if testing.Short() {
		rounds = 20
	}
	var group sync.WaitGroup
	for g := range 4 {
		group.Go(func() {
			for range rounds {
				block, err := b.guard.Allocate(ctx, core.Request{Bytes: 5000, Stream: core.StreamID(g), Tag: "hammer"})
				if err != nil {
					t.Error(err)
					return
				}
				b.launch("writer", core.StreamID(g), func() { b.mem.poke(block.ID.Ptr, 5000) }, block)
				expect.Success(t, b.guard.Seal(ctx, block.ID))
				b.read("reader", core.StreamID(g), func() {}, block)
				_ = b.guard.CheckSeals(ctx) // others' seals may end meanwhile
				expect.Success(t, b.guard.Unseal(ctx, block.ID))
				b.launch("writer", core.StreamID(g), func() { b.mem.poke(block.ID.Ptr, 5000) }, block)
				b.free(block)
			}
		})
	}
	group.Wait()
	b.empty()
	b.want()
}

// unfreeing is a fake that refuses a free while something else is done.
type unfreeing struct {
	*coretest.Fake
	meanwhile func()
}

func (r *unfreeing) Deallocate(ctx context.Context, id core.BlockID) (core.Block, error) {
	if meanwhile := r.meanwhile; meanwhile != nil {
		r.meanwhile = nil
		meanwhile()
		return core.Block{}, errRefused
	}
	return r.Fake.Deallocate(ctx, id)
}

var errRefused = errors.New("the free is refused")

// The free of a sealed block fails, and the guard was turned off meanwhile, which ended all seals: the block's too.
func TestASealThatAFailedFreeTookIsNotPutBackOnceTheGuardWasOff(t *testing.T) {
	for name, change := range map[string]func(*debugguard.Config){"guarded": func(*debugguard.Config) {}, "unguarded": sampled} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, debugguard.Off)
			up := &unfreeing{Fake: b.fake}
			b.guard = b.over(up, debugguard.Sample, change, func(c *debugguard.Config) { c.Advanced.PoisonCap = 1 })
			block := b.alloc(64)
			b.seal(block)
			up.meanwhile = func() { must.Do(t, b.guard.SetMode(ctx, debugguard.Off)) }
			_, err := b.guard.Deallocate(ctx, block.ID)
			expect.Error(t, err, errRefused, "the free")
			must.Do(t, b.guard.SetMode(ctx, debugguard.Sample))
			b.launch("writer", 1, func() {}, block)
			b.want()
		})
	}
}
