package debugguard_test

import (
	"context"
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
)

// show prints what was found.
func show(f core.Finding) {
	fmt.Printf("%s of a block tagged %q at offset %d, %d bytes\n", f.Kind, f.Victim.Tag, f.Offset, f.BadBytes)
	for _, s := range f.Suspects {
		fmt.Println("suspect:", s.Launch)
	}
}

// A kernel that writes behind its buffer is found when the buffer is freed.
func Example() {
	ctx := context.Background()
	device := newMemory()
	guard, err := debugguard.New(coretest.NewFake(0), debugguard.Config{Mode: debugguard.Hunt, Device: device, Findings: show})
	if err != nil {
		fmt.Println(err)
		return
	}
	block, _ := guard.Allocate(ctx, core.Request{Bytes: 100, Tag: "sort.keys"})

	ticket, _ := guard.PrepareUse(ctx, core.UseRequest{Launch: "radix_pass", Uses: []core.Use{{Block: block.ID, Access: core.Write}}})
	device.poke(block.ID.Ptr+96, 8) // four bytes too many
	_ = guard.FinishUse(ctx, ticket)

	freed, _ := guard.Deallocate(ctx, block.ID)
	fmt.Println("freed:", freed.State)
	_ = guard.Drain(ctx)
	// Output:
	// freed: quarantined
	// oob-write of a block tagged "sort.keys" at offset 100, 4 bytes
	// suspect: radix_pass
}

func ExampleParseMode() {
	setting, err := debugguard.ParseMode("hunt:bisect+delay")
	fmt.Println(setting.Mode, setting.Bisect, setting.Delay, setting.Unmap, err)
	_, err = debugguard.ParseMode("sample:0")
	fmt.Println(err)
	// Output:
	// hunt true true false <nil>
	// invalid request: debugguard.ParseMode: mode: "sample:0": sample takes a number of bytes that is not zero
}
