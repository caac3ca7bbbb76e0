package cuda

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/internal/books"
	"github.com/fencepost-gpu/fencepost/internal/blocktable"
	"github.com/fencepost-gpu/fencepost/internal/path"
)

// shelve puts blocks of the generations from..to into books.
func shelve(b *streamBooks, from, to core.Generation) {
	for g := from; g <= to; g++ {
		r := &block{}
		r.core.ID.Generation = g
		b.Lock()
		r.node.Word.Store(blocktable.Word(g, 0))
		b.blocks.Insert(g, &r.node, r)
		b.Unlock()
	}
}

func TestAListingThatIsStoppedEndsAtOnce(t *testing.T) {
	table := newStreamTable(&drivertest.Null{}, false, false)
	shelve(&table.adoptedBooks, 1, 500)
	shelve(table.streams()[0].books, 501, 1000)
	listed := 0
	blocks := inspector{table: table}.Blocks
	blocks(func(core.BlockInfo) bool { listed++; return listed < 7 })
	if listed != 7 {
		t.Errorf("%d were listed after it was stopped at 7", listed)
	}
	blocks(func(core.BlockInfo) bool { listed++; return true })
	if listed != 1007 {
		t.Errorf("%d were listed, 1000 are there", listed-7)
	}
}

// What was recycled while the listing looked elsewhere is not listed under its
// new name: it is another block, which the listing may meet where it belongs.
func TestARecycledRecordIsNotListed(t *testing.T) {
	b := &streamBooks{}
	b.joins(new(books.Group), new(path.Lane), 0)
	shelve(b, 1, 2)
	listed := []core.Generation{}
	b.list(func(info core.BlockInfo) bool {
		listed = append(listed, info.Block.ID.Generation)
		for g := core.Generation(1); g <= 2; g++ { // the other one goes
			if r := b.find(g); r != nil && g != info.Block.ID.Generation {
				b.Lock()
				b.blocks.Remove(g)
				b.Unlock()
				r.core.ID.Generation = 99
			}
		}
		return true
	})
	if len(listed) != 1 || listed[0] > 2 {
		t.Errorf("listed %v", listed)
	}
}
