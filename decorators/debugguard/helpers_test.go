package debugguard_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

var ctx = context.Background()

// sink collects findings.
type sink struct {
	mu  sync.Mutex
	all []core.Finding
}

func (s *sink) Report(f core.Finding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, f)
}

// taken returns the findings so far and forgets them.
func (s *sink) taken() []core.Finding {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.all
	s.all = nil
	return all
}

// clock is a clock that stands still until it is moved.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// bench is a guard over a fake and test memory.
type bench struct {
	*testing.T
	fake  *coretest.Fake
	mem   *memory
	sink  *sink
	clock *clock
	guard *debugguard.Resource
}

func newBench(t *testing.T, mode debugguard.Mode, change ...func(*debugguard.Config)) *bench {
	t.Helper()
	b := &bench{T: t, fake: coretest.NewFake(0), mem: newMemory(), sink: &sink{}, clock: &clock{now: time.Unix(1000, 0)}}
	b.guard = b.over(b.fake, mode, change...)
	return b
}

func (b *bench) over(upstream core.Resource, mode debugguard.Mode, change ...func(*debugguard.Config)) *debugguard.Resource {
	b.Helper()
	cfg := debugguard.Config{Mode: mode, Device: b.mem, Findings: b.sink.Report, Advanced: debugguard.Advanced{Now: b.clock.Now, UpkeepInterval: -1}}
	for _, f := range change {
		f(&cfg)
	}
	return must.Get(debugguard.New(upstream, cfg))(b)
}

func (b *bench) alloc(bytes uint64) core.Block { return b.allocOn(1, bytes) }

func (b *bench) allocOn(stream core.StreamID, bytes uint64) core.Block {
	b.Helper()
	return must.Get(b.guard.Allocate(ctx, core.Request{Bytes: bytes, Stream: stream, Tag: "test"}))(b)
}

func (b *bench) free(block core.Block) core.Block {
	b.Helper()
	return must.Get(b.guard.Deallocate(ctx, block.ID))(b)
}

// launch uses the blocks as one named launch that does work.
func (b *bench) launch(name string, stream core.StreamID, work func(), blocks ...core.Block) {
	b.Helper()
	t := b.prepare(name, stream, blocks...)
	work()
	b.finish(t)
}

func (b *bench) prepare(name string, stream core.StreamID, blocks ...core.Block) core.Ticket {
	b.Helper()
	req := core.UseRequest{Stream: stream, Launch: name}
	for _, block := range blocks {
		req.Uses = append(req.Uses, core.Use{Block: block.ID, Access: core.ReadWrite})
	}
	return must.Get(b.guard.PrepareUse(ctx, req))(b)
}

func (b *bench) finish(t core.Ticket) {
	b.Helper()
	must.Do(b, b.guard.FinishUse(ctx, t))
}

func (b *bench) drain() {
	b.Helper()
	must.Do(b, b.guard.Drain(ctx))
}

// want checks that exactly these kinds were found since, and returns them.
func (b *bench) want(kinds ...core.FindingKind) []core.Finding {
	b.Helper()
	found := b.sink.taken()
	var got []core.FindingKind
	for _, f := range found {
		got = append(got, f.Kind)
		if f.Source != "debugguard" || f.Time.IsZero() || f.Text == "" {
			b.Errorf("finding lacks source, time or text: %+v", f)
		}
	}
	if !slices.Equal(got, kinds) {
		b.Fatalf("found %v, want %v\n%v", got, kinds, found)
	}
	return found
}

// empty drains and checks that nothing is left of any kind.
func (b *bench) empty() {
	b.Helper()
	b.retry(func() error { return b.guard.Drain(ctx) })
	s, g := b.guard.Stats(), b.guard.GuardStats()
	if s.Outstanding() != (core.Amount{}) || s.OpenIntents != 0 {
		b.Errorf("left over: %+v", s)
	}
	if g.Quarantine != (core.Amount{}) || g.BlockedFrees != (core.Amount{}) || g.Checks != 0 || g.Known != 0 {
		b.Errorf("left over in the guard: %+v", g)
	}
	if isolation, waiting := b.guard.Forwarded(); isolation != 0 || waiting != 0 {
		b.Errorf("isolation takes %d; %d wait", isolation, waiting)
	}
	if b.mem.pending != 0 {
		b.Errorf("%d verifications were not given back", b.mem.pending)
	}
}
