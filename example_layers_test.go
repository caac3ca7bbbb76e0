package fencepost_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
)

// largest is a layer that refuses blocks above a size. It embeds its upstream, to which
// goes what it does not change.
type largest struct {
	core.Resource
	bytes uint64
}

func (l *largest) Allocate(ctx context.Context, r core.Request) (core.Block, error) {
	if r.Bytes > l.bytes {
		return core.Block{}, &core.OutOfBudgetError{Requested: r.Bytes, Remaining: l.bytes, Limit: l.bytes, Tag: r.Tag}
	}
	return l.Resource.Allocate(ctx, r)
}

func (l *largest) String() string        { return "largest(" + l.Resource.String() + ")" }
func (l *largest) Unwrap() core.Resource { return l.Resource }

// A layer of the program's own in the stack: it sees what callers ask for, because it
// stands around the guard.
func ExampleLayers() {
	ctx := context.Background()
	limit := func(upstream core.Resource) (core.Resource, error) { return &largest{upstream, 1 << 20}, nil }
	rt, err := fencepost.Open(ctx, fencepost.Config{Device: fencepost.Sim, Layers: fencepost.Layers{AroundGuard: []core.Layer{limit}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rt.Close(ctx)
	_, err = rt.Allocate(ctx, core.Request{Bytes: 2 << 20, Tag: "big"})
	fmt.Println(rt)
	fmt.Println(errors.Is(err, core.ErrOutOfBudget))
	// Output:
	// telemetry(largest(debugguard(budget(logging(pool(sim:0))))))
	// true
}
