package coretest_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
)

func ExampleFake() {
	ctx := context.Background()
	fake := coretest.NewFake(0)
	block, _ := fake.Allocate(ctx, core.Request{Bytes: 64, Tag: "sort"})
	fake.FailNext("Deallocate", errors.New("not now"))
	_, err := fake.Deallocate(ctx, block.ID)
	fmt.Println(err, fake.State(block.ID))

	_, err = fake.Deallocate(ctx, block.ID)
	fmt.Println(err, fake.State(block.ID))
	fake.Pass()
	fmt.Println(fake.State(block.ID))
	// Output:
	// not now live
	// <nil> retired
	// freed
}

func ExampleFaults() {
	ctx := context.Background()
	faults := coretest.NewFaults(coretest.NewFake(0), coretest.Fault{Method: "Allocate", Call: 2, Err: core.ErrOutOfMemory})
	for range 3 {
		_, err := faults.Allocate(ctx, core.Request{Bytes: 64})
		fmt.Println(err)
	}
	fmt.Println(faults, faults.Count("Allocate"), faults.Fired())
	// Output:
	// <nil>
	// out of device memory
	// <nil>
	// faults(fake:0) 3 1
}
