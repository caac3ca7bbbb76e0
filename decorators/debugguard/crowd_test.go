package debugguard_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
)

// stalling is a resource whose first free lasts until it is let go.
type stalling struct {
	core.Resource
	once          atomic.Bool
	stalled, cont chan struct{}
}

func (s *stalling) Unwrap() core.Resource { return s.Resource }

func (s *stalling) Deallocate(ctx context.Context, id core.BlockID) (core.Block, error) {
	if s.once.CompareAndSwap(false, true) {
		close(s.stalled)
		<-s.cont
	}
	return s.Resource.Deallocate(ctx, id)
}

// While one goroutine evicts and is held up, the others' frees do not fill the
// device with quarantine.
func TestQuarantineKeepsItsBoundWhileSomebodyEvicts(t *testing.T) {
	const limit = 1 << 20
	b := newBench(t, debugguard.Off)
	s := &stalling{Resource: b.fake, stalled: make(chan struct{}), cont: make(chan struct{})}
	b.guard = b.over(s, debugguard.Sample, func(c *debugguard.Config) { c.SampleBytes, c.QuarantineBytes, c.Advanced.PoisonCap = 1, limit, 1 })
	var blocks []core.Block
	for range 64 {
		blocks = append(blocks, b.allocOn(1, limit/2))
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, block := range blocks[:3] {
			b.free(block)
		}
	}()
	<-s.stalled
	for _, block := range blocks[3:] {
		b.free(block)
	}
	if held := b.guard.GuardStats().Quarantine.Bytes; held > 2*limit {
		t.Errorf("%d bytes in quarantine, twice its limit is %d", held, 2*limit)
	}
	close(s.cont)
	<-done
	b.empty()
}

// insatiable refuses one request for ever, and lets another block be freed
// before each refusal.
type insatiable struct {
	core.Resource
	asked  int
	others []core.Block
	guard  *debugguard.Resource
}

func (s *insatiable) Unwrap() core.Resource { return s.Resource }

func (s *insatiable) Allocate(ctx context.Context, r core.Request) (core.Block, error) {
	if r.Bytes < 1<<40 {
		return s.Resource.Allocate(ctx, r)
	}
	s.asked++
	if len(s.others) > 0 {
		next := s.others[0]
		s.others = s.others[1:]
		done := make(chan struct{})
		go func() { defer close(done); _, _ = s.guard.Deallocate(ctx, next.ID) }()
		<-done
	}
	return core.Block{}, &core.OutOfBudgetError{Requested: r.Bytes}
}

// A request that can never be met is told so, however much others free.
func TestARequestThatCannotBeMetIsRefusedWhateverOthersFree(t *testing.T) {
	b := newBench(t, debugguard.Off)
	s := &insatiable{Resource: coretest.NewFake(0)}
	s.guard = b.over(s, debugguard.Sample, func(c *debugguard.Config) { c.SampleBytes = 1 })
	b.guard = s.guard
	for range 500 {
		s.others = append(s.others, b.allocOn(1, 4096))
	}
	expect.ErrorOf(s.guard.Allocate(ctx, core.Request{Bytes: 1 << 41, Stream: 1}))(t, core.ErrOutOfBudget)
	if s.asked > 200 {
		t.Errorf("asked %d times", s.asked)
	}
}
