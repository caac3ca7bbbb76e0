package debugguard_test

import (
	"context"
	"fmt"
	"os"
	"runtime/pprof"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/deviceops"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
)

// hangs is how long a call may take on a busy machine.
const hangs = 20 * time.Second

// backCaller is all code that a guard calls: at one place, each time, it calls the guard back.
type backCaller struct {
	core.Resource
	*memory
	place, act string
	guard      *debugguard.Resource
	mode       debugguard.Setting
	sealed     core.BlockID
	inside     atomic.Bool
	calls      atomic.Int64
	hung       atomic.Value
}

// called calls the guard back from place, on a goroutine that is waited for.
func (c *backCaller) called(place string) {
	if place != c.place || c.guard == nil || c.inside.Swap(true) {
		return
	}
	defer c.inside.Store(false)
	if c.calls.Add(1) > 30 { // more of them show nothing else
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.callBack()
	}()
	select {
	case <-done:
	case <-time.After(hangs):
		if c.hung.Swap(place) == nil {
			_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
		}
	}
}

func (c *backCaller) callBack() {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond) // a call may have to wait for its caller
	defer cancel()
	g := c.guard
	switch c.act {
	case "switches it off":
		_ = g.SetMode(ctx, debugguard.Off)
	case "switches it off and on":
		_, _ = g.SetMode(ctx, debugguard.Off), g.Apply(ctx, c.mode)
	case "looks":
		_, _, _ = g.Stats(), g.GuardStats(), g.Setting()
		_, _ = g.State(c.sealed), g.String()
	case "allocates":
		if b, err := g.Allocate(ctx, core.Request{Bytes: 64, Stream: 1, Tag: "back"}); err == nil {
			_ = g.Seal(ctx, b.ID)
			_, _ = g.Deallocate(ctx, b.ID)
		}
	case "ends seals":
		_, _ = g.CheckSeals(ctx), g.Unseal(ctx, c.sealed)
	case "drains":
		_, _ = g.ReapPending(ctx), g.Drain(ctx)
	case "closes":
		_ = g.Close(ctx)
	}
}

func (c *backCaller) Allocate(ctx context.Context, req core.Request) (core.Block, error) {
	defer c.called("layer")
	if req.Bytes >= 1<<60 {
		return core.Block{}, &core.OutOfBudgetError{Requested: req.Bytes}
	}
	return c.Resource.Allocate(ctx, req)
}

func (c *backCaller) Deallocate(ctx context.Context, id core.BlockID) (core.Block, error) {
	c.called("layer")
	return c.Resource.Deallocate(ctx, id)
}

func (c *backCaller) PrepareUse(ctx context.Context, req core.UseRequest) (core.Ticket, error) {
	defer c.called("layer")
	return c.Resource.PrepareUse(ctx, req)
}

func (c *backCaller) FinishUse(ctx context.Context, t core.Ticket) error {
	c.called("layer")
	return c.Resource.FinishUse(ctx, t)
}

func (c *backCaller) Drain(ctx context.Context) error {
	c.called("layer")
	return c.Resource.Drain(ctx)
}

func (c *backCaller) Fill(ctx context.Context, s core.StreamID, r []deviceops.Region) error {
	c.called("Fill")
	return c.memory.Fill(ctx, s, r)
}

func (c *backCaller) Verify(ctx context.Context, s core.StreamID, r []deviceops.Region) (deviceops.Verification,
	error) {
	c.called("Verify")
	return c.memory.Verify(ctx, s, r)
}

func (c *backCaller) Checksum(ctx context.Context, s core.StreamID, r []deviceops.Region) (deviceops.Checksums, error) {
	c.called("Checksum")
	return c.memory.Checksum(ctx, s, r)
}

func (c *backCaller) Delay(ctx context.Context, s core.StreamID, d time.Duration) error {
	c.called("Delay")
	return c.memory.Delay(ctx, s, d)
}

func (c *backCaller) Synchronize(ctx context.Context, s core.StreamID) error {
	c.called("Synchronize")
	return c.memory.Synchronize(ctx, s)
}

func (c *backCaller) Emit(context.Context, oplog.Event) { c.called("Events") }

// untrackedBack is a backCaller that does not fence uses.
type untrackedBack struct{ *backCaller }

func (untrackedBack) Features() core.Features { return 0 }

// Whatever code the guard calls, and in whatever mode: it may call the guard back, which waits for
// no lock that its caller holds.
func TestTheCodeThatTheGuardCallsMayCallItBack(t *testing.T) {
	places := []string{"layer", "Fill", "Verify", "Checksum", "Delay", "Synchronize", "Findings", "Events", "Span",
		"OnStack"}
	acts := []string{"switches it off", "switches it off and on", "looks", "allocates", "ends seals", "drains", "closes"}
	called := map[string]bool{}
	for _, mode := range []string{"off", "ledger", "sample:1", "hunt", "hunt:bisect", "hunt:delay", "hunt:bisect+delay"} {
		if testing.Short() && mode != "sample:1" && mode != "hunt:bisect+delay" {
			continue // all take 20 seconds, for the guard waits a moment for a caller that makes no progress
		}
		for _, tracked := range []bool{true, false} {
			for _, place := range places {
				for _, act := range acts {
					t.Run(fmt.Sprintf("%s/tracked=%v/%s %s", mode, tracked, place, act), func(t *testing.T) {
						if callsBack(t, mode, tracked, place, act) {
							called[place] = true
						}
					})
				}
			}
		}
	}
	for _, place := range places {
		if !called[place] {
			t.Errorf("%s is never called", place)
		}
	}
}

// callsBack runs a program over a guard whose callbacks call it, and reports whether one did.
func callsBack(t *testing.T, mode string, tracked bool, place, act string) bool {
	setting, err := debugguard.ParseMode(mode)
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, debugguard.Off)
	c := &backCaller{Resource: b.fake, memory: b.mem, place: place, act: act, mode: setting}
	var upstream core.Resource = c
	if !tracked {
		upstream = untrackedBack{c}
	}
	g := b.over(upstream, setting.Mode, func(cfg *debugguard.Config) {
		cfg.Device, cfg.SampleBytes = c, 1
		cfg.Findings = func(core.Finding) { c.called("Findings") }
		cfg.Advanced.Events, cfg.Advanced.Patience = c, -1
		cfg.Advanced.Span = func(context.Context) core.SpanContext { c.called("Span"); return core.SpanContext{} }
		cfg.Advanced.OnStack = func(uint64, core.Tag, core.Stack) { c.called("OnStack") }
	})
	if err := g.Apply(ctx, setting); err != nil {
		t.Fatal(err)
	}
	b.guard, c.guard = g, g
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.program(b)
	}()
	select {
	case <-ended:
	case <-time.After(2 * hangs):
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
		t.Fatal("the program hangs")
	}
	if where := c.hung.Load(); where != nil {
		t.Errorf("a call from %s hangs", where)
	}
	if c.guard = nil; act == "closes" {
		return c.calls.Load() > 0
	}
	b.empty()
	return c.calls.Load() > 0
}

// program does all that a guard can be asked, some of it wrongly, and leaves nothing. What the
// guard refuses, it refuses.
func (c *backCaller) program(b *bench) {
	g := c.guard
	launch := func(name string, work func(), uses ...core.Use) {
		if t, err := g.PrepareUse(ctx, core.UseRequest{Stream: 2, Launch: name, Uses: uses}); err == nil {
			work()
			_ = g.FinishUse(ctx, t)
		}
	}
	var held []core.Block
	for range 3 {
		if block, err := g.Allocate(ctx, core.Request{Bytes: 64, Stream: 1, Tag: "test"}); err == nil {
			held = append(held, block)
		}
	}
	for i, block := range held {
		read, write := core.Use{Block: block.ID, Access: core.Read}, core.Use{Block: block.ID, Access: core.Write}
		launch("unwritten", func() {}, read)
		launch("first", func() { b.mem.poke(block.ID.Ptr, 64) }, write)
		c.sealed = block.ID
		_ = g.Seal(ctx, block.ID)
		launch("reads", func() {}, read)
		_ = g.CheckSeals(ctx)
		if i == 0 {
			launch("writes undeclared", func() { b.mem.poke(block.ID.Ptr, 8) }, read)
		}
		launch("breaks the seal", func() {}, write)
		_ = g.Seal(ctx, block.ID)
		_ = g.Unseal(ctx, block.ID)
		launch("overruns", func() { b.mem.poke(block.ID.Ptr, 65) }, write)
		if i < 2 {
			_, _ = g.Deallocate(ctx, block.ID)
			_, _ = g.Deallocate(ctx, block.ID)
		}
	}
	_, _ = g.Allocate(ctx, core.Request{Bytes: 1 << 60, Stream: 1, Tag: "huge"})
	_, _ = g.ReapPending(ctx), g.Drain(ctx)
	_ = g.SetMode(ctx, debugguard.Ledger)
	_ = g.Apply(ctx, c.mode)
	for _, block := range held {
		if g.State(block.ID) == core.Live {
			_, _ = g.Deallocate(ctx, block.ID)
		}
	}
}
