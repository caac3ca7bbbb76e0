package liveview

import (
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

// maxDetails is how many blocks are shown in detail at a time.
const maxDetails = 16

// details are the blocks of a stretch of addresses, the largest first.
type details struct {
	// Total is how many there are.
	Total  uint64   `json:"total"`
	Blocks []detail `json:"blocks"`
}

type detail struct {
	Ptr        string   `json:"ptr"`
	Generation uint64   `json:"generation"`
	Bytes      uint64   `json:"bytes"`
	Requested  uint64   `json:"requested"`
	Tag        string   `json:"tag"`
	State      string   `json:"state"`
	Stream     uint64   `json:"stream"`
	AgeMS      int64    `json:"age_ms"` // -1 if it is not known
	Stack      []string `json:"stack"`
	Uses       []use    `json:"uses"`
}

type use struct {
	Launch string `json:"launch"`
	ID     uint64 `json:"id"`
	Stream uint64 `json:"stream"`
	Access string `json:"access"`
	AgeMS  int64  `json:"age_ms"`
}

// blocksIn lists the blocks that have an address in a stretch.
func blocksIn(inspector core.Inspector, of stretch) details {
	top, out := &largest{n: maxDetails}, details{Blocks: []detail{}}
	inspector.Blocks(func(info core.BlockInfo) bool {
		if ptr := info.Block.ID.Ptr; ptr < of.to && of.from < ptr+info.Block.Bytes {
			out.Total++
			top.show(info)
		}
		return true
	})
	now := time.Now()
	for _, info := range top.bySize() {
		out.Blocks = append(out.Blocks, detailOf(info, now))
	}
	return out
}

func detailOf(info core.BlockInfo, now time.Time) detail {
	b := info.Block
	d := detail{Ptr: hex(b.ID.Ptr), Generation: uint64(b.ID.Generation), Bytes: b.Bytes, Requested: b.Requested,
		Tag: clip(string(b.Tag.OrUntagged()), maxTagText), State: stateNames[place(b.State)], Stream: uint64(b.ID.AllocStream),
		AgeMS: age(now, info.Allocated), Stack: frames(info.AllocStack), Uses: []use{}}
	for _, u := range info.Uses {
		d.Uses = append(d.Uses, use{Launch: clip(u.Launch, maxTagText), ID: u.LaunchID, Stream: uint64(u.Stream), Access: u.Access.String(), AgeMS: age(now, u.Time)})
	}
	return d
}

// stateNames are the states as metrics call them, by their places.
var stateNames = [...]string{"live", "pending", "quarantined"}
