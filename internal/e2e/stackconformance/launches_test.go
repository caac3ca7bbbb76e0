package stackconformance_test

import (
	"context"
	"slices"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
)

// strange is a decorator of somebody's own, to which the guard's request is one like another.
type strange struct{ core.Resource }

// The guard hears of a launch's blocks from the backend, or finds them itself where that is not below it. What it
// notes of a launch that is refused, withdrawn or aborted is gone in either case, and the rest stays.
func TestTheGuardKnowsTheLaunchesOfABlockWhereverItHearsOfThem(t *testing.T) {
	for name, below := range map[string][]core.Layer{
		"the backend": nil,
		"a log of uses": {func(up core.Resource) (core.Resource, error) {
			return logging.New(up, logging.Config{Level: logging.Uses, Sinks: []logging.Sink{logging.NewRing(0)}})
		}},
		"a stranger":  {func(up core.Resource) (core.Resource, error) { return strange{up}, nil }},
		"another one": {ledger},
	} {
		t.Run(name, func(t *testing.T) {
			s := teststack.Open(t, teststack.Config{Pool: &cuda.PoolConfig{}, Layers: append(below, ledger)})
			ctx, one, other := t.Context(), s.Lease(t, "one").ID(), s.Lease(t, "other").ID()
			block := must.Get(s.Runtime.Allocate(ctx, core.Request{Bytes: 64, Stream: one}))(t)
			freed := must.Get(s.Runtime.Allocate(ctx, core.Request{Bytes: 64, Stream: one}))(t)
			_, err := s.Runtime.Deallocate(ctx, freed.ID)
			must.Do(t, err)
			prepare := func(launch string, stream core.StreamID, blocks ...core.Block) (core.Ticket, error) {
				req := core.UseRequest{Stream: stream, Launch: launch}
				for _, b := range blocks {
					req.Uses = append(req.Uses, core.Use{Block: b.ID, Access: core.Write})
				}
				return s.Runtime.PrepareUse(ctx, req)
			}
			for range 3 { // with the same intent
				ticket := must.Get(prepare("finished", one, block))(t)
				expect.ErrorOf(prepare("in the way", other, block))(t, core.ErrStreamMisuse, "a conflict")
				must.Do(t, s.Runtime.FinishUse(ctx, ticket))
				expect.Error(t, s.Runtime.FinishUse(ctx, ticket), core.ErrStreamMisuse, "a second end")
				expect.ErrorOf(prepare("stale", one, block, freed))(t, core.ErrUseAfterFree, "a freed block")
				ticket = must.Get(prepare("aborted", other, block))(t)
				must.Do(t, s.Runtime.AbortUse(ctx, ticket))
			}
			info, known := s.Runtime.Resource().Inspect().Remember(block.ID)
			var uses []string
			for _, u := range info.Uses {
				uses = append(uses, u.Launch)
			}
			if uses = slices.Compact(uses); !known || len(uses) != 1 || uses[0] != "finished" {
				t.Errorf("the block's uses are those of %q", uses)
			}
			_, err = s.Runtime.Deallocate(ctx, block.ID)
			must.Do(t, err, s.Runtime.Drain(ctx))
		})
	}
}

func ledger(up core.Resource) (core.Resource, error) {
	return debugguard.New(up, debugguard.Config{Mode: debugguard.Ledger})
}

// A guard below another claims the tickets of launches that the upper one watches, and hears of the others from the
// backend: each launch ends once, and a free that waits for one goes on then.
func TestAGuardBelowAnotherEndsALaunchOnce(t *testing.T) {
	var upper *debugguard.Resource
	s := openWhole(t, setup{guard: debugguard.Config{Mode: debugguard.Hunt}, fills: true, between: map[int]core.Layer{3: func(up core.Resource) (_ core.Resource, err error) {
		upper, err = debugguard.New(up, debugguard.Config{Mode: debugguard.Off})
		return upper, err
	}}})
	ctx, on := t.Context(), s.Lease(t, "guarded").ID()
	block := must.Get(s.Runtime.Allocate(ctx, core.Request{Bytes: 64, Stream: on}))(t)
	uses := []core.Use{{Block: block.ID, Access: core.Write}}
	nothing := func(context.Context) error { return nil }
	must.Do(t, upper.SetMode(ctx, debugguard.Ledger), s.Runtime.Launch(ctx, on, uses, nothing),
		upper.SetMode(ctx, debugguard.Off), s.Runtime.Launch(ctx, on, uses, nothing))
	ticket := must.Get(s.Runtime.PrepareUse(ctx, core.UseRequest{Stream: on, Uses: uses}))(t)
	must.Get(s.Runtime.Deallocate(ctx, block.ID))(t)
	before := s.guard.GuardStats().Quarantine.Blocks
	must.Do(t, s.Runtime.FinishUse(ctx, ticket))
	if after := s.guard.GuardStats().Quarantine.Blocks; before != 0 || after != 1 {
		t.Errorf("%d blocks are in quarantine while the last launch is open, and %d behind it", before, after)
	}
	must.Do(t, s.guard.SetMode(ctx, debugguard.Off), s.Runtime.Drain(ctx))
}
