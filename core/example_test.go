package core_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
)

// The examples run over the scripted fake; a service passes the stack that
// the root package's Open composes.

func ExampleNewRuntime() {
	ctx := context.Background()
	rt, err := core.NewRuntime(coretest.NewFake(0), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	block, err := rt.Allocate(ctx, core.Request{Bytes: 4096, Tag: "sort.keys"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(block.State, block.Requested, block.Tag)

	block, err = rt.Deallocate(ctx, block.ID)
	fmt.Println(block.State, err, rt.BytesOutstanding())
	err = rt.Drain(ctx)
	fmt.Println(rt.State(block.ID), err, rt.BytesOutstanding())
	// Output:
	// live 4096 sort.keys
	// retired <nil> 4096
	// freed <nil> 0
}

func ExampleRuntime_Launch() {
	ctx := context.Background()
	rt, _ := core.NewRuntime(coretest.NewFake(0), nil)
	keys, _ := rt.Allocate(ctx, core.Request{Bytes: 4096, Tag: "keys"})
	sorted, _ := rt.Allocate(ctx, core.Request{Bytes: 4096, Tag: "sorted"})

	const stream core.StreamID = 2
	uses := []core.Use{{Block: keys.ID, Access: core.Read}, {Block: sorted.ID, Access: core.Write}}
	err := rt.Launch(ctx, stream, uses, func(ctx context.Context) error {
		fmt.Println("enqueue the kernel on stream", stream)
		return nil
	})
	fmt.Println(err, rt.Stats().Launches)
	// Output:
	// enqueue the kernel on stream 2
	// <nil> 1
}

func ExampleLaunchRecorder() {
	ctx := context.Background()
	rt, _ := core.NewRuntime(coretest.NewFake(0), nil)
	input, _ := rt.Allocate(ctx, core.Request{Bytes: 4096, Tag: "input"})
	output, _ := rt.Allocate(ctx, core.Request{Bytes: 4096, Tag: "output"})

	rec := core.NewStrictRecorder(2).Named("scan")
	if err := errors.Join(rec.Read(input), rec.Write(output), rec.Preflight(ctx, rt)); err != nil {
		fmt.Println(errors.Join(err, rec.Abort(ctx, rt)))
		return
	}
	// Enqueue the work here. What it uses is fixed by now:
	late := rec.Write(input)
	fmt.Println("late use refused:", errors.Is(late, core.ErrStreamMisuse))
	fmt.Println("commit repeats it:", errors.Is(rec.Commit(ctx, rt), late))
	fmt.Println("launches fenced:", rt.Stats().Launches)
	// Output:
	// late use refused: true
	// commit repeats it: true
	// launches fenced: 1
}

func ExampleChain() {
	logged := func(upstream core.Resource) (core.Resource, error) { return coretest.NewFaults(upstream), nil }
	off := func(upstream core.Resource) (core.Resource, error) { return upstream, nil }
	stack, err := core.Chain(coretest.NewFake(0), logged, off, core.Layer(logged))
	fmt.Println(stack, err)
	fmt.Println(core.Base(stack))
	_, _ = stack.Allocate(context.Background(), core.Request{Bytes: 4096, Tag: "rows"})
	for info := range stack.Inspect().Blocks {
		fmt.Println(info.Block.Tag, info.Block.State)
	}
	// Output:
	// faults(faults(fake:0)) <nil>
	// fake:0
	// rows live
}

func ExampleRuntime_Reserve() {
	ctx := context.Background()
	rt, _ := core.NewRuntime(&smallBudget{Fake: coretest.NewFake(0), left: 1 << 20}, nil)
	claim, err := rt.Reserve(ctx, 1<<20, "index.build")
	fmt.Println(claim.Bytes, err)
	_, err = rt.Reserve(ctx, 4096, "sort")
	fmt.Println("no room for the sort:", errors.Is(err, core.ErrOutOfBudget))

	block, err := rt.Allocate(ctx, core.Request{Bytes: 4096, Tag: "index.build", Claim: claim.ID})
	fmt.Println(block.Requested, err)
	fmt.Println(rt.ReleaseClaim(ctx, claim.ID))
	// Output:
	// 1048576 <nil>
	// no room for the sort: true
	// 4096 <nil>
	// <nil>
}

// smallBudget stands in for decorators/budget, which this package cannot
// import: it grants claims and no more.
type smallBudget struct {
	*coretest.Fake
	left uint64
}

func (b *smallBudget) Reserve(_ context.Context, bytes uint64, tag core.Tag) (core.Claim, error) {
	if bytes > b.left {
		return core.Claim{}, &core.OutOfBudgetError{Requested: bytes, Remaining: b.left, Tag: tag}
	}
	b.left -= bytes
	return core.Claim{ID: 1, Bytes: bytes, Tag: tag}, nil
}

func (b *smallBudget) ReleaseClaim(context.Context, core.ClaimID) error { return nil }

func ExampleRuntime_Close() {
	ctx := context.Background()
	rt, _ := core.NewRuntime(coretest.NewFake(0), nil)
	_, _ = rt.Allocate(ctx, core.Request{Bytes: 4096, Tag: "index.build"})

	left, err := rt.Close(ctx)
	fmt.Println(left.LeakedBytes, "bytes leaked,", err)
	for _, leak := range left.Leaks {
		fmt.Println(leak.Block.Tag, leak.Block.Requested)
	}
	_, err = rt.Allocate(ctx, core.Request{Bytes: 1})
	fmt.Println(err)
	// Output:
	// 4096 bytes leaked, <nil>
	// index.build 4096
	// Allocate refused: the runtime is closed
}

func ExampleOutOfBudgetError() {
	ctx := context.Background()
	fake := coretest.NewFake(0)
	fake.FailNext("Allocate", &core.OutOfBudgetError{Requested: 4096, Remaining: 1024, Limit: 8192, Live: 7168, Tag: "sort",
		Holders: []core.Holder{{Tag: "index.build", State: core.Live, Bytes: 7168, Blocks: 3}}})
	rt, _ := core.NewRuntime(fake, nil)

	_, err := rt.Allocate(ctx, core.Request{Bytes: 4096, Tag: "sort"})
	var refusal *core.OutOfBudgetError
	if errors.As(err, &refusal) {
		fmt.Printf("%d bytes short; %s holds %d\n", refusal.Requested-refusal.Remaining, refusal.Holders[0].Tag, refusal.Holders[0].Bytes)
	}
	fmt.Println(err)
	// Output:
	// 3072 bytes short; index.build holds 7168
	// out of budget: requested 4.0 KiB for "sort", remaining 1.0 KiB of 8.0 KiB (live 7.0 KiB, pending 0 B, quarantined 0 B, claimed 0 B); largest holders: index.build live 7.0 KiB in 3 blocks
}
