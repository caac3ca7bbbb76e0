package gputest

import (
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/testkit/testkernels"
)

const wordBytes = 8

// What the guard finds here lies in memory that the driver has handed out: in
// red zones and in quarantine. compute-sanitizer has nothing to say about it,
// so these tests run under it too.

// single returns the only finding.
func (b *bench) single(kind core.FindingKind, tag core.Tag) core.Finding {
	b.Helper()
	b.dirty = true
	must(b, b.Drain(ctx))
	found := b.Findings().Recent()
	if len(found) != 1 || found[0].Kind != kind || found[0].Victim.Tag != tag || found[0].Source != "debugguard" {
		b.Fatalf("findings %v; want one of %s by the guard, of a block tagged %q", found, kind, tag)
	}
	b.Logf("found: %v", found[0])
	return found[0]
}

// within checks where the damage begins and how large it is. A byte that was
// overwritten with its own value is no damage.
func (b *bench) within(f core.Finding, from, to int64) {
	b.Helper()
	if f.Offset < from || f.Offset >= to || f.BadBytes == 0 || f.BadBytes > uint64(to-from) {
		b.Errorf("%d bad bytes from offset %d; want some from %d to %d", f.BadBytes, f.Offset, from, to)
	}
}

func TestTheGuardFindsAWriteBehindABlock(t *testing.T) {
	b := newBench(t, fencepost.Config{Guard: "hunt"})
	s, other := b.lease("test"), b.lease("test")
	victim, bystander := b.alloc(s, 1000, "victim"), b.alloc(other, 1000, "bystander")
	must(t, b.doWrite(s, victim, 1))
	must(t, b.doWrite(other, bystander, 2))
	must(t, b.outOfBounds.Launch(ctx, b.Runtime, s, grid(1000), []core.Use{victim.Use(core.Write)},
		victim.Arg(), driver.U64(1000), driver.U64(4)))
	must(t, victim.Free(ctx))
	must(t, bystander.Free(ctx))
	f := b.single(names.FindingOutOfBoundsWrite, "victim")
	b.within(f, 1000*wordBytes, 1004*wordBytes)
	if len(f.Uses) == 0 || f.Uses[0].Launch != testkernels.OutOfBounds {
		t.Errorf("the last use is %v, want the planted launch", f.Uses)
	}
}

// planted writes words behind the runtime's back, on the stream of the free:
// behind the guard's poison.
func (b *bench) planted(on *cuda.Lease, ptr uint64, n int) {
	b.Helper()
	must(b, b.write.Enqueue(on.Handle(), grid(n), driver.Ptr(ptr), driver.U64(uint64(n)), driver.U64(testkernels.Planted)))
}

func TestTheGuardFindsAWriteAfterTheFree(t *testing.T) {
	b := newBench(t, fencepost.Config{Guard: "hunt"})
	s := b.lease("test")
	victim := b.alloc(s, 1000, "victim")
	must(t, b.doWrite(s, victim, 1))
	ptr := victim.Ptr()
	must(t, victim.Free(ctx))
	b.planted(s, ptr+100*wordBytes, 3)
	b.within(b.single(names.FindingUseAfterFreeWrite, "victim"), 100*wordBytes, 103*wordBytes)
}

func TestTheGuardFindsNothingInACleanProgram(t *testing.T) {
	gpu(t)
	for _, mode := range []string{"hunt", "hunt:bisect+delay", "sample:65536"} {
		t.Run(mode, func(t *testing.T) {
			b := newBench(t, fencepost.Config{Guard: fencepost.GuardMode(mode)})
			seed := firstSeed(t)
			for i := range uint64(scaled(20, 3)) {
				if wrong := b.runProgram(seed + i); wrong != 0 {
					t.Errorf("program with seed %d: %d words are wrong", seed+i, wrong)
				}
			}
			must(t, b.Drain(ctx))
			if g := b.Guard().GuardStats(); g.Guarded == 0 || g.Verified == 0 || g.Unchecked != 0 || g.Findings != 0 {
				t.Errorf("the guard: %+v", g)
			}
		})
	}
}

// Blocks that are poisoned and compared whole.
func TestTheGuardWatchesBigBlocks(t *testing.T) {
	gpu(t)
	bytes := scaled(1<<30, 16<<20)
	n := bytes / wordBytes
	for name, plant := range map[string]bool{"clean": false, "one word changed": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, fencepost.Config{Guard: "hunt", GuardConfig: debugguard.Config{QuarantineBytes: uint64(4 * bytes)}})
			x, y := b.lease("test"), b.lease("test")
			first, second := b.alloc(x, n, "first"), b.alloc(x, n, "second")
			sum, err := b.counter(y)
			must(t, err)
			must(t, b.doWrite(x, first, 7))
			must(t, b.doCopy(y, second, first, 1))
			must(t, b.doCheck(y, second, 8, sum))
			b.right(y, sum)
			middle := int64(n/2) * wordBytes
			ptr := second.Ptr() + uint64(middle)
			for _, w := range []*words{first, second} {
				must(t, w.Free(ctx))
			}
			if held := b.Guard().GuardStats().Quarantine.Requested; held < uint64(2*bytes) {
				t.Errorf("quarantine holds %d bytes of two blocks", held)
			}
			if plant {
				b.planted(x, ptr, 1)
				b.within(b.single(names.FindingUseAfterFreeWrite, "second"), middle, middle+wordBytes)
			}
		})
	}
}
