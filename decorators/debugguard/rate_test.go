package debugguard_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// guardedOf allocates and frees n blocks of a tag and says how many of them were
// guarded, and how many skipped.
func (b *bench) guardedOf(n int, tag core.Tag) (guarded, skipped uint64) {
	b.Helper()
	before := b.guard.GuardStats()
	for range n {
		block := must.Get(b.guard.Allocate(ctx, core.Request{Bytes: 64, Stream: 1, Tag: tag}))(b)
		b.free(block)
	}
	after := b.guard.GuardStats()
	return after.Guarded - before.Guarded, after.Skipped - before.Skipped
}

func TestSamplingIsBoundedInTimeUnlessAskedForByBytes(t *testing.T) {
	b := newBench(t, debugguard.Sample, func(c *debugguard.Config) {
		c.SampleBytes, c.Advanced.SampleRate, c.HuntTags = 1, 200, []core.Tag{"hunted"}
	})
	few := func(when string) {
		t.Helper()
		b.clock.advance(time.Minute)
		if guarded, skipped := b.guardedOf(100, "test"); guarded < 1 || guarded > 9 || guarded+skipped != 100 {
			t.Errorf("%s: %d guarded, %d skipped of 100 at once", when, guarded, skipped)
		}
	}
	all := func(when string, tag core.Tag) {
		t.Helper()
		if guarded, skipped := b.guardedOf(50, tag); guarded != 50 || skipped != 0 {
			t.Errorf("%s: %d guarded, %d skipped of 50", when, guarded, skipped)
		}
	}
	few("at the start")
	if n := b.guard.SampleRate(); n != 200 {
		t.Errorf("a bound of %d", n)
	}
	all("a hunted tag", "hunted")
	b.guard.SampleTag("tagged", 1)
	all("a tag with a mean of its own", "tagged")
	must.Do(t, b.guard.Apply(ctx, debugguard.Setting{Mode: debugguard.Sample, SampleBytes: 1}))
	all("a mean by a setting", "test")
	if got, n := b.guard.Setting().String(), b.guard.SampleRate(); got != "sample:1" || n != 0 {
		t.Errorf("setting %q with a bound of %d", got, n)
	}
	must.Do(t, b.guard.Apply(ctx, debugguard.Setting{Mode: debugguard.Sample}))
	if got := b.guard.Setting().String(); got != "sample" {
		t.Errorf("setting %q", got)
	}
	few("back to the configuration")
	b.guard.SetSampleBytes(1)
	all("a mean while it runs", "test")
	b.empty()
	b.want()
}

func TestAMeanInTheConfigurationIsNotBounded(t *testing.T) {
	for name, change := range map[string]func(*debugguard.Config){
		"given":    func(c *debugguard.Config) { c.SampleBytes = 1 },
		"no bound": func(c *debugguard.Config) { c.SampleBytes, c.Advanced.SampleRate = 1, -1 },
	} {
		b := newBench(t, debugguard.Sample, change)
		if guarded, skipped := b.guardedOf(500, "test"); guarded != 500 || skipped != 0 {
			t.Errorf("%s: %d guarded, %d skipped of 500", name, guarded, skipped)
		}
		b.empty()
	}
}

func TestBlocksOfAnAgeLeaveTogether(t *testing.T) {
	b := newBench(t, debugguard.Hunt, func(c *debugguard.Config) { c.QuarantineAge, c.Advanced.Hunt.Canaries = 8*time.Second, -1 })
	var blocks []core.Block
	for range 12 {
		blocks = append(blocks, b.alloc(64))
	}
	for _, block := range blocks {
		b.free(block)
		b.clock.advance(200 * time.Millisecond)
	}
	b.clock.advance(5700 * time.Millisecond) // the first is 8.1 s old
	b.reap()
	if g := b.guard.GuardStats(); g.Evicted != 6 || g.Quarantine.Blocks != 6 {
		t.Errorf("%d left and %d stay, want those freed within a second of the oldest to leave", g.Evicted, g.Quarantine.Blocks)
	}
	b.clock.advance(100 * time.Millisecond)
	b.reap()
	if n := b.guard.GuardStats().Evicted; n != 6 {
		t.Errorf("%d left, though none was too old", n)
	}
	b.empty()
	b.want()
}

func (b *bench) reap() {
	b.Helper()
	must.Do(b, b.guard.ReapPending(ctx))
}

// A quarantine that nobody has sized is a share of the most that callers have had, so that the
// pool need not grow much for it.
func TestQuarantineFollowsWhatCallersHaveHad(t *testing.T) {
	const block = 1 << 20
	for _, c := range []struct {
		name         string
		bytes, mem   uint64
		live, atMost uint64
	}{
		{"little live", 0, 0, 0, debugguard.MinQuarantineBytes},
		{"a share", 0, 0, 512 << 20, 512 << 20 / 16},
		{"much live", 0, 0, 8 << 30, debugguard.DefaultQuarantineBytes},
		{"little memory", 0, 2 << 30, 1 << 30, 2 << 30 / 250},
		{"sized", 24 * block, 2 << 30, 0, 24 * block},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, debugguard.Sample, func(cfg *debugguard.Config) {
				cfg.SampleBytes, cfg.Advanced.PoisonCap, cfg.QuarantineBytes, cfg.Advanced.Memory = 1, 1, c.bytes, c.mem
			})
			if c.live > 0 {
				b.free(b.alloc(c.live)) // it is too large to be kept
			}
			var most uint64
			for range 2 * debugguard.DefaultQuarantineBytes / block {
				b.free(b.alloc(block))
				most = max(most, b.guard.GuardStats().Quarantine.Bytes)
			}
			if most > c.atMost+c.atMost/1000 || most+2*block < c.atMost {
				t.Errorf("quarantine held %d bytes at most, want %d", most, c.atMost)
			}
			b.empty()
			b.want()
		})
	}
}

// A device that is far behind has quarantine keep what would go unchecked, up to
// twice its limit.
func TestQuarantineKeepsWhatWouldGoUnchecked(t *testing.T) {
	const limit = 64 << 10
	b := newBench(t, debugguard.Hunt, func(c *debugguard.Config) { c.QuarantineBytes, c.Advanced.Hunt.Canaries = limit, -1 })
	b.mem.hold()
	g := b.guard.GuardStats()
	for stream := core.StreamID(0); g.Quarantine.Bytes <= limit && stream < 40_000; stream++ {
		b.free(b.allocOn(stream%8, 512)) // small batches: an eighth of quarantine, of eight streams
		g = b.guard.GuardStats()
	}
	if g.Quarantine.Bytes <= limit || g.Unchecked != 0 || g.Checks < 4096 {
		t.Fatalf("quarantine holds %v with %d checks awaited and %d left out", g.Quarantine, g.Checks, g.Unchecked)
	}
	for range 2 * limit / 1024 {
		b.free(b.alloc(512))
		g = b.guard.GuardStats()
		if g.Quarantine.Bytes > 2*limit {
			t.Fatalf("quarantine holds %v, twice its limit is %d", g.Quarantine, 2*limit)
		}
	}
	if g.Unchecked == 0 {
		t.Error("quarantine was full twice over and nothing is counted as left out")
	}
	b.mem.release()
	for range 2 {
		before := b.guard.GuardStats().Checks
		b.free(b.alloc(512))
		if now := b.guard.GuardStats().Checks; before > now+debugguard.VerdictsForRoom {
			t.Errorf("a free has read %d verdicts of other blocks, want %d at most", before-now, debugguard.VerdictsForRoom)
		}
	}
	b.reap()
	if g = b.guard.GuardStats(); g.Quarantine.Bytes > limit {
		t.Errorf("the device has caught up and quarantine still holds %v", g.Quarantine)
	}
	b.empty()
	b.want()
}

func TestABatchComparesAFewCanaries(t *testing.T) {
	b := newBench(t, debugguard.Hunt, func(c *debugguard.Config) { c.Advanced.Hunt.QuarantineBytes = 512 << 10 })
	if n := len(b.churned(2000)); n < 40 {
		t.Fatalf("%d canaries", n)
	}
	most := 0
	for _, call := range b.fake.Calls() {
		var blocks int
		if n, _ := fmt.Sscanf(call, "PrepareUse gpumem.guard.verify %d", &blocks); n == 1 {
			most = max(most, blocks)
		}
	}
	if most <= 64 || most > 64+16 {
		t.Errorf("a batch compares up to %d blocks, want 64 and 16 canaries at most", most)
	}
	for _, s := range b.canaries() { // each of them is compared in the end
		b.mem.poke(s.ID.Ptr+8, 1)
	}
	damaged := len(b.canaries())
	b.empty()
	if found := b.sink.taken(); len(found) != damaged {
		t.Errorf("%d of %d damaged canaries were found", len(found), damaged)
	}
}

func TestARateThatIsHighEnoughLeavesNothingOut(t *testing.T) {
	b := newBench(t, debugguard.Sample, func(c *debugguard.Config) { c.SampleBytes, c.Advanced.SampleRate = 1, 100000 })
	if guarded, _ := b.guardedOf(500, "test"); guarded < 490 {
		t.Errorf("%d of 500 blocks guarded", guarded)
	}
}

// A seed repeats which blocks are sampled; another one, or none, draws others.
func TestASeedRepeatsWhichBlocksAreSampled(t *testing.T) {
	run := func(seed uint64) (guarded string) {
		b := newBench(t, debugguard.Sample, func(c *debugguard.Config) { c.SampleBytes, c.Advanced.SampleSeed = 1<<12, seed })
		for i := range 200 {
			before := b.guard.GuardStats().Guarded
			b.free(must.Get(b.guard.Allocate(ctx, core.Request{Bytes: 1 << 10, Stream: core.StreamID(1 + i%2), Tag: "test"}))(b))
			guarded += fmt.Sprint(b.guard.GuardStats().Guarded - before)
		}
		return guarded
	}
	if first, again, other := run(1), run(1), run(2); first != again || first == other {
		t.Errorf("seed 1 guards\n%s and then\n%s, seed 2\n%s", first, again, other)
	}
}
