package cuda

import (
	"math/rand/v2"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
)

// shelve puts blocks of the generations from..to into books.
func shelve(b *books, from, to core.Generation) {
	for g := from; g <= to; g++ {
		r := &block{}
		r.core.ID.Generation = g
		b.mu.Lock()
		b.blocks.insert(g, r)
		b.mu.Unlock()
	}
}

// A listing lets others at the books in between, so the table may grow under
// it, more than once.
func TestAListingMeetsEachBlockOnceHoweverTheTableGrows(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		random := rand.New(rand.NewPCG(seed, 1))
		b := &books{}
		there := core.Generation(1 + random.IntN(2000))
		shelve(b, 1, there)
		met, newest := map[core.Generation]int{}, there
		var w blockWalk
		w.through(b, func(info core.BlockInfo) bool {
			met[info.Block.ID.Generation]++
			if newest < 8*there && random.IntN(8) == 0 {
				more := core.Generation(random.IntN(400))
				shelve(b, newest+1, newest+more)
				newest += more
			}
			return true
		})
		for g, n := range met {
			if n != 1 {
				t.Fatalf("seed %d: generation %d was listed %d times", seed, g, n)
			}
		}
		for g := core.Generation(1); g <= there; g++ {
			if met[g] == 0 {
				t.Fatalf("seed %d: generation %d of %d that were there was not listed, the table grew to %d", seed, g, there, newest)
			}
		}
	}
}

func TestAListingThatIsStoppedEndsAtOnce(t *testing.T) {
	table := newStreamTable(nil, false)
	shelve(&table.adoptedBooks, 1, 500)
	shelve(table.streams()[0].books, 501, 1000)
	listed := 0
	r := &AsyncResource{streams: &StreamPool{table: table}}
	r.Blocks(func(core.BlockInfo) bool { listed++; return listed < 7 })
	if listed != 7 {
		t.Errorf("%d were listed after it was stopped at 7", listed)
	}
	r.Blocks(func(core.BlockInfo) bool { listed++; return true })
	if listed != 1007 {
		t.Errorf("%d were listed, 1000 are there", listed-7)
	}
}

// What was recycled while the listing looked elsewhere is not listed under its
// new name: it is another block, which the listing may meet where it belongs.
func TestARecycledRecordIsNotListed(t *testing.T) {
	b := &books{}
	shelve(b, 1, 2)
	listed := []core.Generation{}
	var w blockWalk
	w.through(b, func(info core.BlockInfo) bool {
		listed = append(listed, info.Block.ID.Generation)
		for g := core.Generation(1); g <= 2; g++ { // the other one goes
			if r := b.find(g); r != nil && g != info.Block.ID.Generation {
				b.mu.Lock()
				b.blocks.remove(g)
				b.mu.Unlock()
				r.core.ID.Generation = 99
			}
		}
		return true
	})
	if len(listed) != 1 || listed[0] > 2 {
		t.Errorf("listed %v", listed)
	}
}
