package budget_test

import (
	"context"
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/decorators/budget"
)

func ExampleNew() {
	ctx := context.Background()
	device := coretest.NewFake(0)
	r, err := budget.New(device, budget.Config{Limit: 1000})
	if err != nil {
		panic(err)
	}
	fmt.Println(r)

	index, err := r.Allocate(ctx, core.Request{Bytes: 700, Tag: "index.build"})
	fmt.Println(index.Bytes, err)
	_, err = r.Allocate(ctx, core.Request{Bytes: 400, Tag: "query"})
	fmt.Println(err)
	// Output:
	// budget(fake:0)
	// 700 <nil>
	// out of budget: requested 400 B for "query", remaining 300 B of 1000 B (live 700 B, pending 0 B, quarantined 0 B, claimed 0 B); largest holders: index.build live 700 B in 1 block
}

func ExampleResource_Reserve() {
	ctx := context.Background()
	r, err := budget.New(coretest.NewFake(0), budget.Config{Limit: 1000})
	if err != nil {
		panic(err)
	}
	claim, err := r.Reserve(ctx, 600, "query")
	fmt.Println(claim.Bytes, err)
	_, err = r.Allocate(ctx, core.Request{Bytes: 500, Tag: "sort.keys", Claim: claim.ID})
	fmt.Println(err, r.Stats().Claimed)
	_, err = r.Reserve(ctx, 600, "query")
	fmt.Println(err)
	fmt.Println(r.ReleaseClaim(ctx, claim.ID), r.Stats().Charged)
	// Output:
	// 600 <nil>
	// <nil> 100
	// out of budget: requested 600 B for "query", remaining 400 B of 1000 B (live 500 B, pending 0 B, quarantined 0 B, claimed 100 B); largest holders: sort.keys live 500 B in 1 block, query claimed 100 B in 1 reservation
	// <nil> 500
}

func ExampleResource_SetLimit() {
	ctx := context.Background()
	device := coretest.NewFake(0)
	r, err := budget.New(device, budget.Config{Limit: 1000})
	if err != nil {
		panic(err)
	}
	b, _ := r.Allocate(ctx, core.Request{Bytes: 800, Stream: 1})
	r.SetLimit(500) // revokes nothing
	fmt.Println(r.Stats().Charged, r.Limit())

	_, _ = r.Deallocate(ctx, b.ID)
	_, err = r.Allocate(ctx, core.Request{Bytes: 400, Stream: 2})
	fmt.Println("on another stream, refused:", err != nil)
	_, err = r.Allocate(ctx, core.Request{Bytes: 400, Stream: 1})
	fmt.Println("behind the free, refused:", err != nil)
	// Output:
	// 800 500
	// on another stream, refused: true
	// behind the free, refused: false
}
