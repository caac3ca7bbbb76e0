package debugguard_test

import (
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/names"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

func (b *bench) mode(m debugguard.Mode) {
	b.Helper()
	must.Do(b, b.guard.SetMode(ctx, m))
}

func TestASettingIsAppliedAsAWhole(t *testing.T) {
	b := newBench(t, debugguard.Ledger, func(c *debugguard.Config) { c.SampleBytes, c.Advanced.Hunt.Bisect = 1<<40, true })
	for _, s := range []string{"sample:4096", "hunt:delay+unmap", "hunt", "sample", "off", "ledger", "hunt:bisect"} {
		setting, err := debugguard.ParseMode(s)
		if err == nil {
			err = b.guard.Apply(ctx, setting)
		}
		if got := b.guard.Setting(); err != nil || got.String() != s || b.guard.Mode() != setting.Mode {
			t.Errorf("%s: the setting is %v, the mode %v, %v", s, got, b.guard.Mode(), err)
		}
	}
	b.mode(debugguard.Ledger)
	b.mode(debugguard.Hunt)
	if got := b.guard.Setting().String(); got != "hunt:bisect" {
		t.Errorf("SetMode changed the options: %s", got)
	}
	for _, bad := range []debugguard.Setting{{Mode: 9}, {Mode: debugguard.Ledger, Bisect: true}, {Mode: debugguard.Hunt, SampleBytes: 1}} {
		if err := b.guard.Apply(ctx, bad); !errors.Is(err, core.ErrInvalidRequest) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if got := b.guard.Setting().String(); got != "hunt:bisect" {
		t.Errorf("a refused setting left %s", got)
	}
}

func TestBlocksAllocatedWhileOffAreNeverForeign(t *testing.T) {
	b := newBench(t, debugguard.Off)
	used, freed := b.alloc(64), b.alloc(64)
	b.mode(debugguard.Hunt)
	b.launch("use", 1, func() {}, used)
	b.free(used)
	b.free(freed)
	b.want()
	expect.ErrorOf(b.guard.Deallocate(ctx, freed.ID))(t, core.ErrUseAfterFree, "second free")
	b.want(names.FindingDoubleFree)
	b.drain()
	expect.ErrorOf(b.guard.Deallocate(ctx, used.ID))(t, core.ErrUseAfterFree, "second free")
	b.want(names.FindingStaleHandle)
	b.empty()
}

func TestOffWatchesNothingAndLosesNothing(t *testing.T) {
	b := newBench(t, debugguard.Hunt)
	live, freed, busy := b.alloc(64), b.alloc(64), b.alloc(64)
	ticket := b.prepare("open", 1, busy)
	b.free(freed)
	b.free(busy)
	b.mode(debugguard.Off)
	if s := b.guard.State(freed.ID); s != core.Retired {
		t.Errorf("after the guard was turned off the quarantined block is %v", s)
	}
	expect.ErrorOf(b.guard.Deallocate(ctx, busy.ID))(t, core.ErrUseAfterFree, "second free of a block that the guard holds")
	b.finish(ticket)
	if s := b.guard.State(busy.ID); s != core.Retired {
		t.Errorf("the block freed during its launch is %v", s)
	}
	b.mem.poke(live.ID.Ptr+64, 1)
	b.launch("use", 2, func() {}, live)
	b.free(live)
	b.empty()
	b.want()
	if f := b.mem.calls["Fill"]; f != 4 { // three armings, one poison
		t.Errorf("%d fills", f)
	}
}

func TestOffForwardsWhatTheLedgerStillKnows(t *testing.T) {
	b := newBench(t, debugguard.Ledger)
	live, freed := b.alloc(1), b.alloc(1)
	b.free(freed)
	b.mode(debugguard.Off)
	b.fake.Calls()
	expect.ErrorOf(b.guard.Deallocate(ctx, freed.ID))(t, core.ErrUseAfterFree, "second free")
	expect.Error(t, b.guard.RecordUse(ctx, freed.ID, 1), core.ErrUseAfterFree, "use")
	if calls := b.fake.Calls(); len(calls) != 2 {
		t.Errorf("the upstream was not asked: %v", calls)
	}
	b.free(live)
	b.free(b.alloc(1))
	b.empty()
	b.want()
}

func TestPeakIsRebasedWhenTheGuardComesBack(t *testing.T) {
	b := newBench(t, debugguard.Hunt)
	b.free(b.alloc(100))
	b.mode(debugguard.Off)
	b.empty()
	quiet := b.alloc(400)
	b.mode(debugguard.Hunt)
	b.free(b.alloc(50))
	if s := b.guard.Stats(); s.PeakRequested != 450 {
		t.Errorf("peak %d, want 450", s.PeakRequested)
	}
	b.free(quiet)
	b.empty()
}

func TestOffForwardsTheDoubleFree(t *testing.T) {
	b := newBench(t, debugguard.Off)
	block := b.alloc(1)
	b.free(block)
	b.fake.Calls()
	expect.ErrorOf(b.guard.Deallocate(ctx, block.ID))(t, core.ErrUseAfterFree, "second free")
	if len(b.fake.Calls()) != 1 {
		t.Error("the upstream was not asked")
	}
	b.want()
}

func TestSampleChoosesByBytesAndByTag(t *testing.T) {
	b := newBench(t, debugguard.Sample, func(c *debugguard.Config) {
		c.SampleBytes, c.HuntTags = 100_000, []core.Tag{"hunted"}
	})
	const n = 20_000
	for range n {
		b.free(b.alloc(500))
	}
	if g := b.guard.GuardStats().Guarded; g < 50 || g > 160 { // 100 expected, standard deviation 10
		t.Errorf("%d blocks of %d bytes guarded", g, n*500)
	}
	b.guard.SetSampleBytes(1 << 60)
	before := b.guard.GuardStats().Guarded
	for range 10 {
		block := must.Get(b.guard.Allocate(ctx, core.Request{Bytes: 8, Tag: "hunted"}))(t)
		b.free(block)
	}
	if g := b.guard.GuardStats().Guarded; g != before+10 {
		t.Errorf("%d of 10 hunted blocks were guarded", g-before)
	}
	b.empty()
	b.want()
}

func TestATagIsSampledAtARateOfItsOwn(t *testing.T) {
	b := newBench(t, debugguard.Sample, func(c *debugguard.Config) { c.SampleBytes = 1 })
	guarded := func(tag core.Tag) uint64 {
		t.Helper()
		before := b.guard.GuardStats().Guarded
		for range 10 {
			block := must.Get(b.guard.Allocate(ctx, core.Request{Bytes: 8, Tag: tag}))(t)
			b.free(block)
		}
		return b.guard.GuardStats().Guarded - before
	}
	b.guard.SampleTag("never", 0)
	b.guard.SampleTag("", 0)
	if n, un, other := guarded("never"), guarded(names.Untagged), guarded("other"); n != 0 || un != 0 || other != 10 {
		t.Errorf("%d of a tag never sampled, %d untagged, %d of another", n, un, other)
	}
	b.guard.HuntTags("never")
	if n := guarded("never"); n != 10 {
		t.Errorf("hunted: %d", n)
	}
	b.guard.HuntTags()
	b.guard.SetSampleBytes(1 << 60)
	b.guard.SampleTag("always", 1)
	if always, n := guarded("always"), guarded("never"); always != 10 || n != 0 {
		t.Errorf("%d of a tag always sampled, %d of one never", always, n)
	}
	b.empty()
	b.want()
}

func TestAHuntHasMoreQuarantineThanSampling(t *testing.T) {
	b := newBench(t, debugguard.Hunt, func(c *debugguard.Config) {
		c.SampleBytes, c.QuarantineBytes, c.Advanced.Hunt.QuarantineBytes, c.Advanced.Hunt.Canaries = 1, 8<<10, 64<<10, -1
	})
	for range 100 {
		b.free(b.alloc(1024))
		if q := b.guard.GuardStats().Quarantine.Bytes; q > 64<<10 {
			t.Fatalf("quarantine holds %d bytes", q)
		}
	}
	if q := b.guard.GuardStats().Quarantine.Bytes; q < 48<<10 {
		t.Errorf("a hunt's quarantine holds %d bytes only", q)
	}
	b.mode(debugguard.Sample)
	if q := b.guard.GuardStats().Quarantine.Bytes; q > 8<<10 {
		t.Errorf("after the hunt %d bytes are left", q)
	}
	for range 100 {
		b.free(b.alloc(1024))
		if q := b.guard.GuardStats().Quarantine.Bytes; q > 8<<10 {
			t.Fatalf("quarantine holds %d bytes", q)
		}
	}
	b.empty()
	b.want()
}

func TestSamplePoisonsLargeBlocksInThreePlaces(t *testing.T) {
	const size = 1 << 16
	for offset, seen := range map[uint64]bool{0: true, size / 2: true, size - 1: true, 1000: false} {
		b := newBench(t, debugguard.Sample, func(c *debugguard.Config) { c.SampleBytes, c.Advanced.PoisonCap = 1, 4096 })
		block := b.alloc(size)
		b.free(block)
		b.mem.poke(block.ID.Ptr+offset, 1)
		b.empty()
		found := b.sink.taken()
		if (len(found) == 1) != seen {
			t.Errorf("write at %d: %v", offset, found)
		}
		if len(found) == 1 && found[0].Offset != int64(offset) {
			t.Errorf("write at %d found at %d", offset, found[0].Offset)
		}
	}
}

func TestWithoutDeviceOnlyTheLedgerRuns(t *testing.T) {
	b := newBench(t, debugguard.Hunt, func(c *debugguard.Config) { c.Device = nil })
	if b.guard.Features().Has(core.DeviceChecks) {
		t.Error("device checks without a device")
	}
	block := b.alloc(64)
	b.free(block)
	if s := b.guard.State(block.ID); s != core.Retired {
		t.Errorf("the block is %v", s)
	}
	_, _ = b.guard.Deallocate(ctx, block.ID)
	b.want(names.FindingDoubleFree)
	b.empty()
}
