package liveview

import (
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

// maxDetails is how many blocks are shown in detail at a time.
const maxDetails = 16

// blocksIn are the blocks that have an address in a stretch, the largest first, and
// how many there are.
func blocksIn(inspector core.Inspector, of stretch) object {
	top, total := &largest{n: maxDetails}, 0
	inspector.Blocks(func(info core.BlockInfo) bool {
		if ptr := info.Block.ID.Ptr; ptr < of.to && of.from < ptr+info.Block.Bytes {
			total++
			top.show(info)
		}
		return true
	})
	now, blocks := time.Now(), []object{}
	for _, info := range top.bySize() {
		blocks = append(blocks, blockOf(info, now))
	}
	return object{"total", total, "blocks", blocks}
}

func blockOf(info core.BlockInfo, now time.Time) object {
	b, uses := info.Block, []object{}
	for _, u := range info.Uses {
		uses = append(uses, object{"launch", clip(u.Launch, maxTagText), "id", u.LaunchID, "stream", uint64(u.Stream), "access", u.Access.String(), "age_ms", age(now, u.Time)})
	}
	return object{
		"ptr", hex(b.ID.Ptr), "generation", uint64(b.ID.Generation), "bytes", b.Bytes, "requested", b.Requested,
		"tag", clip(string(b.Tag.OrUntagged()), maxTagText), "state", stateNames[place(b.State)], "stream", uint64(b.ID.AllocStream),
		"age_ms", age(now, info.Allocated), "stack", frames(info.AllocStack), "uses", uses,
	}
}

// stateNames are the states as metrics call them, by their places.
var stateNames = [...]string{"live", "pending", "quarantined"}
