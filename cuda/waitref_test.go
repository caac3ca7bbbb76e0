package cuda_test

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
)

func TestAWaitNamesTheLaunchOrTheAllocationThatItIsFor(t *testing.T) {
	b := newBench(t)
	s := b.leases(2)
	written, fresh := b.alloc(s[0], 256), b.alloc(s[0], 256)
	release := b.hold(s[0]) // or the waits may be elided
	writer := b.launchNamed(s[0], "writer", writes(written))
	for _, c := range []struct {
		what  string
		block core.Block
		want  core.WaitRef
	}{
		{"an allocation", fresh, core.WaitRef{Block: fresh.ID.Generation}}, // first: the writer's event covers it
		{"a launch", written, core.WaitRef{Launch: writer}},
	} {
		ticket, err := b.Runtime.PrepareUse(ctx, core.UseRequest{Stream: s[1].ID(), Uses: []core.Use{{Block: c.block.ID, Access: core.Read}}})
		must(t, err)
		waited := ticket.Intent().Waited
		equal(t, "waits for "+c.what, len(waited), 1)
		equal(t, "the wait for "+c.what+" is for", waited[0].For, c.want)
		must(t, b.Runtime.FinishUse(ctx, ticket))
	}
	release()
	b.free(written, fresh)
}
