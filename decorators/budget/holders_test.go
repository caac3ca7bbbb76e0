package budget

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
)

// Thousands of tags on several streams are each listed once, with their sums.
func TestHoldersOfManyTags(t *testing.T) {
	const tags, streams = 3000, 3
	d := newDevice()
	r := newBudget(t, d, Config{Limit: 1 << 40})
	want := map[core.Tag]uint64{}
	var blocks []core.Block
	for i := range tags * streams {
		tag := core.Tag(fmt.Sprint("tag", i%tags))
		b := mustAllocate(t, r, core.Request{Bytes: uint64(1 + i), Stream: core.StreamID(i / tags), Tag: tag})
		want[tag] += b.Bytes
		blocks = append(blocks, b)
	}
	holders := r.Holders()
	for i, h := range holders {
		if h.Bytes != want[h.Tag] || h.Blocks != streams || h.State != core.Live {
			t.Errorf("%+v, want %d bytes", h, want[h.Tag])
		}
		if i > 0 && h.Bytes > holders[i-1].Bytes {
			t.Errorf("%d bytes stand behind %d", h.Bytes, holders[i-1].Bytes)
		}
		delete(want, h.Tag)
	}
	if len(want) > 0 {
		t.Errorf("%d tags are missing", len(want))
	}
	for _, b := range blocks {
		mustFree(t, r, b)
	}
	for s := range streams {
		d.pass(core.StreamID(s), tags)
	}
	wantEmpty(t, r)
}

// Tags come and go, each new one before an old one, so at every instant so many
// hold something: no list has fewer, although the forgetting of idle tags moves
// the others.
func TestHoldersHammer(t *testing.T) {
	const held, rounds = 200, 20_000
	d := newDevice()
	r := newBudget(t, d, Config{Limit: 1 << 40})
	var done atomic.Bool
	var readers sync.WaitGroup
	blocks := make([]core.Block, 0, held)
	rotate := func(i int) {
		b := mustAllocate(t, r, core.Request{Bytes: 8, Tag: core.Tag(fmt.Sprint("tag", i))})
		if len(blocks) < held {
			blocks = append(blocks, b)
			return
		}
		mustFree(t, r, blocks[i%held])
		blocks[i%held] = b
		d.pass(0, 1)
	}
	for i := range held {
		rotate(i)
	}
	readers.Go(func() {
		for !done.Load() {
			found := 0
			for _, h := range r.Holders() {
				if h.State == core.Live {
					found++
				}
			}
			if found < held {
				t.Errorf("%d tags are listed, %d hold something", found, held)
				return
			}
		}
	})
	for i := range rounds {
		rotate(held + i)
	}
	done.Store(true)
	readers.Wait()
	for _, b := range blocks {
		mustFree(t, r, b)
	}
	d.pass(0, held)
	wantEmpty(t, r)
}
