package stackconformance_test

import (
	"math/rand/v2"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/path"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/internal/testkit/pathtest"
)

// again is how many of the next n pairs get a block that the stream has kept.
func again(t *testing.T, s *whole, gate *pathtest.Gate, req core.Request, n int) uint64 {
	t.Helper()
	before := gate.Ordinary.Allocations.Load()
	for range n {
		must.Get(s.Runtime.Deallocate(t.Context(), must.Get(s.Runtime.Allocate(t.Context(), req))(t).ID))(t)
	}
	return gate.Ordinary.Allocations.Load() - before
}

// steady is a stack of which one stream keeps a block for each pair of req.
func steady(t *testing.T, guard debugguard.Config) (s *whole, gate *pathtest.Gate, req core.Request) {
	t.Helper()
	s = openWhole(t, setup{guard: guard, fills: guard.Mode == debugguard.Sample,
		between: map[int]core.Layer{0: pathtest.Put(&gate, 0, 0)}})
	req = core.Request{Bytes: 4096, Stream: s.Lease(t, "steady").ID(), Tag: "steady"}
	if again(t, s, gate, req, 200) < 100 {
		t.Fatal("few pairs of 200 are ordinary: the test shows nothing")
	}
	return s, gate, req
}

func TestAnAllocationIsOrdinaryOnlyIfNothingIsToBeDecided(t *testing.T) {
	s, gate, steadily := steady(t, debugguard.Config{})
	lane := path.Of(s.budget).Lane(steadily.Stream)
	for name, c := range map[string]struct {
		before func()
		change func(*core.Request)
		want   uint64
	}{
		"as before": {want: 1},
		"a lock of the lane": {before: func() {
			lane.Lock()
			defer lane.Unlock()
		}},
		"a lock that was free": {before: func() {
			if lane.TryLock() {
				lane.Unlock()
			}
		}},
		"a look at the books": {before: func() { s.Runtime.Stats() }},
		"another size":        {change: func(r *core.Request) { r.Bytes++ }},
		"less is asked for":   {change: func(r *core.Request) { r.Requested-- }},
		"another tag":         {change: func(r *core.Request) { r.Tag = "other" }},
		"a recall":            {before: func() { s.budget.SetLimit(limit - 1) }},
	} {
		again(t, s, gate, steadily, 50) // the stream keeps one
		req := steadily
		req.Requested = req.Bytes
		if c.before != nil {
			c.before()
		}
		if c.change != nil {
			c.change(&req)
		}
		if got := again(t, s, gate, req, 1); got != c.want {
			t.Errorf("%s: %d ordinary allocations, want %d", name, got, c.want)
		}
	}
	span := core.WithSpan(t.Context(), core.SpanRef{TraceID: [16]byte{1}, SpanID: [8]byte{1}})
	again(t, s, gate, steadily, 50)
	before := gate.Ordinary.Allocations.Load()
	b := must.Get(s.Runtime.Allocate(span, steadily))(t)
	if gate.Ordinary.Allocations.Load() != before {
		t.Error("an allocation in a sampled trace is ordinary")
	}
	must.Get(s.Runtime.Deallocate(t.Context(), b.ID))(t)
}

// What a stream keeps is as little as the credit that it might have: a sixteenth of the room. While a
// reservation waits for room it keeps nothing, and each free is told.
func TestStreamsKeepASmallPartOfTheRoom(t *testing.T) {
	const streams, bound = 3, 8 << 20
	rng := rand.New(rand.NewPCG(pathtest.Seed(t), 0))
	var gate *pathtest.Gate
	s := openWhole(t, setup{between: map[int]core.Layer{0: pathtest.Put(&gate, 0, 0)}})
	var leases []core.StreamID
	for range streams {
		leases = append(leases, s.Lease(t, "keeps").ID())
	}
	s.budget.SetLimit(bound)
	live, blocks := uint64(0), []core.Block{}
	free := func() {
		i := rng.IntN(len(blocks))
		must.Get(s.Runtime.Deallocate(t.Context(), blocks[i].ID))(t)
		live -= blocks[i].Bytes
		blocks[i] = blocks[len(blocks)-1]
		blocks = blocks[:len(blocks)-1]
	}
	allocate := func() {
		b, err := s.Runtime.Allocate(t.Context(),
			core.Request{Bytes: 1 << (8 + rng.IntN(12)), Stream: leases[rng.IntN(streams)], Tag: "keeps"})
		if err == nil {
			blocks, live = append(blocks, b), live+b.Bytes
		}
	}
	for range 3000 {
		if allocate(); len(blocks) > 0 && rng.IntN(5) > 0 {
			room, bytes := s.budget.Room(), live
			if free(); s.budget.Room() == room && 16*(bytes-live) > room {
				t.Fatalf("of a free, %d bytes are kept while there is room for %d", bytes-live, room)
			}
		}
	}
	if gate.Ordinary.Allocations.Load() < 100 {
		t.Errorf("%d ordinary allocations: the test shows nothing", gate.Ordinary.Allocations.Load())
	}
	for range 20 {
		allocate()
	}
	s.Runtime.Stats() // what was kept is credit now, or room
	told := 0
	s.budget.NotifyRoom(func() { told++ })
	before := s.budget.Room()
	for want := 0; len(blocks) > 0; {
		bytes := live
		free()
		if want++; told < want || s.budget.Room() < before+bytes-live {
			t.Fatalf("a free of %d bytes: room %d, before it %d; %d of %d frees were told", bytes-live, s.budget.Room(),
				before, told, want)
		}
		before = s.budget.Room()
	}
	s.budget.NotifyRoom(nil)
}

// The guard chooses blocks by the bytes that go by, also if nearly all of them are ordinary.
func TestOrdinaryAllocationsCountForTheGuardsChoice(t *testing.T) {
	for name, c := range map[string]struct {
		mode  debugguard.Mode
		bytes uint64
	}{
		"stacks, by bytes": {debugguard.Ledger, 4096}, "stacks, by size": {debugguard.Ledger, 1 << 20},
		"red zones": {debugguard.Sample, 4096},
	} {
		t.Run(name, func(t *testing.T) {
			stacks := uint64(0)
			guard := debugguard.Config{Mode: c.mode, SampleBytes: 1 << 20}
			guard.Advanced.UpkeepInterval, guard.Advanced.StackBytes = -1, 1<<20
			guard.Advanced.OnStack = func(uint64, core.Tag, core.Stack) { stacks++ }
			s, gate, req := steady(t, guard)
			req.Bytes = c.bytes
			chosen := func() uint64 {
				if now := s.guard.GuardStats(); c.mode == debugguard.Sample {
					return now.Guarded + now.Skipped
				}
				return stacks
			}
			const pairs, least = 20_000, 10 // of some 80 by bytes, and 16 in 10 ms by size
			before, ordinary := chosen(), again(t, s, gate, req, pairs)
			if got := chosen() - before; got < least || ordinary < pairs/2 {
				t.Errorf("of %d blocks of %d bytes %d were chosen, at least %d should be; %d were ordinary", pairs, c.bytes,
					got, least, ordinary)
			}
			must.Do(t, s.guard.Flush(t.Context()), s.Runtime.Drain(t.Context()))
		})
	}
}

// A job's account follows its own blocks, whichever of them were kept.
func TestAKeptBlockIsOfTheAccountThatItIsAllocatedFor(t *testing.T) {
	s, gate, req := steady(t, debugguard.Config{})
	accounts := [...]*core.Account{core.NewAccount(), nil, core.NewAccount()}
	for round := range 30 {
		req.Account = accounts[round%len(accounts)]
		before := gate.Ordinary.Allocations.Load()
		b := must.Get(s.Runtime.Allocate(t.Context(), req))(t)
		if round > 0 && gate.Ordinary.Allocations.Load() == before {
			t.Fatal("an allocation for an account is not ordinary")
		}
		for i, a := range accounts {
			want := uint64(0)
			if a == req.Account {
				want = req.Bytes
			}
			if a != nil && a.Live() != want {
				t.Fatalf("round %d: account %d has %d bytes live, want %d", round, i, a.Live(), want)
			}
		}
		must.Get(s.Runtime.Deallocate(t.Context(), b.ID))(t)
	}
	for i, a := range accounts {
		if a != nil && (a.Live() != 0 || a.Peak().Bytes != req.Bytes || a.Read().Allocated.Blocks != 10) {
			t.Errorf("account %d: live %d, %+v", i, a.Live(), a.Read())
		}
	}
}

// A claim's bytes are the claim's as soon as its block is free, for each stream.
func TestABlockOfAClaimIsNotKept(t *testing.T) {
	s, _, req := steady(t, debugguard.Config{})
	other := s.Lease(t, "other").ID()
	claim := must.Get(s.Runtime.Reserve(t.Context(), req.Bytes, "claim"))(t)
	req.Claim = claim.ID
	for range 20 {
		for _, req.Stream = range []core.StreamID{req.Stream, other} {
			b := must.Get(s.Runtime.Allocate(t.Context(), req))(t)
			must.Get(s.Runtime.Deallocate(t.Context(), b.ID))(t)
		}
		unclaimed := req
		unclaimed.Claim = 0
		b := must.Get(s.Runtime.Allocate(t.Context(), unclaimed))(t)
		claimed := must.Get(s.Runtime.Allocate(t.Context(), req))(t)
		for _, b := range []core.Block{b, claimed} {
			must.Get(s.Runtime.Deallocate(t.Context(), b.ID))(t)
		}
	}
	must.Do(t, s.Runtime.ReleaseClaim(t.Context(), claim.ID))
}

// A block that keeps its stacks gets that of its free, too, so such a free is not ordinary.
func TestABlockWithStacksIsNotKept(t *testing.T) {
	stacked := false
	guard := debugguard.Config{Mode: debugguard.Ledger}
	guard.Advanced.OnStack = func(uint64, core.Tag, core.Stack) { stacked = true }
	s, gate, req := steady(t, guard)
	req.Bytes = 1 << 20
	met := 0
	for range 5000 {
		stacked = false
		b := must.Get(s.Runtime.Allocate(t.Context(), req))(t)
		before := gate.Ordinary.Frees.Load()
		must.Get(s.Runtime.Deallocate(t.Context(), b.ID))(t)
		if stacked {
			if met++; gate.Ordinary.Frees.Load() != before {
				t.Fatal("the free of a block with stacks is ordinary")
			}
		}
	}
	if met == 0 {
		t.Error("no block had stacks: the test shows nothing")
	}
}

func TestAStreamKeepsNoMoreThan32Blocks(t *testing.T) {
	s, gate, req := steady(t, debugguard.Config{})
	var blocks []core.Block
	for range 100 {
		blocks = append(blocks, must.Get(s.Runtime.Allocate(t.Context(), req))(t))
	}
	for _, b := range blocks {
		must.Get(s.Runtime.Deallocate(t.Context(), b.ID))(t)
	}
	before := gate.Ordinary.Allocations.Load()
	for i := range blocks {
		blocks[i] = must.Get(s.Runtime.Allocate(t.Context(), req))(t)
	}
	if got := gate.Ordinary.Allocations.Load() - before; got == 0 || got > 32 {
		t.Errorf("of 100 allocations, %d got a kept block", got)
	}
	for _, b := range blocks {
		must.Get(s.Runtime.Deallocate(t.Context(), b.ID))(t)
	}
}

// With few streams the peak is exact, also of blocks that were kept in between.
func TestThePeakOfKeptBlocksIsExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(pathtest.Seed(t), 0))
	for range 200 {
		var gate *pathtest.Gate
		s := openWhole(t, setup{between: map[int]core.Layer{0: pathtest.Put(&gate, 0, 0)}})
		streams := []core.StreamID{s.Lease(t, "a").ID(), s.Lease(t, "b").ID()}
		live, peak, blocks := uint64(0), uint64(0), []core.Block{}
		for range 60 {
			if len(blocks) == 0 || rng.IntN(2) > 0 {
				b := must.Get(s.Runtime.Allocate(t.Context(), core.Request{Bytes: 4096 << rng.IntN(3),
					Stream: streams[rng.IntN(2)], Tag: core.Tag([]string{"a", "b"}[rng.IntN(2)])}))(t)
				blocks, live = append(blocks, b), live+b.Bytes
				peak = max(peak, live)
				continue
			}
			i := rng.IntN(len(blocks))
			must.Get(s.Runtime.Deallocate(t.Context(), blocks[i].ID))(t)
			live -= blocks[i].Bytes
			blocks = append(blocks[:i], blocks[i+1:]...)
		}
		if got := s.Runtime.Stats().PeakBytes; got != peak {
			t.Fatalf("the peak is %d, and was %d; %d ordinary allocations", got, peak, gate.Ordinary.Allocations.Load())
		}
		for _, b := range blocks {
			must.Get(s.Runtime.Deallocate(t.Context(), b.ID))(t)
		}
	}
}
