package budget

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"unsafe"

	"github.com/fencepost-gpu/fencepost/core"
)

func TestAThousandBlocksComeAndGoInAnyOrder(t *testing.T) {
	const goroutines, each = 4, 250
	random := rand.New(rand.NewPCG(1, 2))
	r := newBudget(t, &leaf{}, Config{Limit: mib})
	for range 3 { // records are used again
		blocks := make([]core.Block, goroutines*each)
		var group sync.WaitGroup
		for g := range goroutines {
			group.Go(func() {
				for i := range each {
					var err error
					if blocks[g*each+i], err = r.Allocate(context.Background(), core.Request{Bytes: 7, Stream: 1}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		group.Wait()
		if h := r.Holders(); len(h) != 1 || h[0].Blocks != goroutines*each || h[0].Bytes != 7*goroutines*each {
			t.Fatalf("holders %+v", h)
		}
		random.Shuffle(len(blocks), func(i, j int) { blocks[i], blocks[j] = blocks[j], blocks[i] })
		for g := range goroutines {
			group.Go(func() {
				for _, b := range blocks[g*each : (g+1)*each] {
					if _, err := r.Deallocate(context.Background(), b.ID); err != nil {
						t.Error(err)
					}
				}
			})
		}
		group.Wait()
		wantEmpty(t, r)
	}
}

// watched asks the budget while the upstream is asked for memory.
type watched struct {
	leaf
	during func()
}

func (w *watched) Allocate(ctx context.Context, r core.Request) (core.Block, error) {
	w.during()
	return w.leaf.Allocate(ctx, r)
}

// What the device was asked for is charged, and a refusal names it, but it is live only once it is given.
func TestAnAllocationUnderWayIsChargedAndNotLive(t *testing.T) {
	up := &watched{}
	r := newBudget(t, up, Config{Limit: 100})
	live := core.Holder{Tag: "sort", State: core.Live, Bytes: 60, Blocks: 1}
	up.during = func() {
		wantCharged(t, r, 60)
		if h := r.Holders(); len(h) != 0 {
			t.Errorf("holders %+v", h)
		}
		if e := r.Refuse(41, "join", core.Wait{}); e.Live != 60 || len(e.Holders) != 1 || e.Holders[0] != live {
			t.Errorf("the refusal names %+v, and %d bytes as live", e.Holders, e.Live)
		}
	}
	up.fail = errInjected
	if _, err := r.Allocate(context.Background(), core.Request{Bytes: 60, Tag: "sort"}); !errors.Is(err, errInjected) {
		t.Fatalf("got %v", err)
	}
	wantEmpty(t, r)
	up.fail = nil
	b := mustAllocate(t, r, core.Request{Bytes: 60, Tag: "sort"})
	if h := r.Holders(); len(h) != 1 || h[0] != live {
		t.Errorf("holders %+v", h)
	}
	mustFree(t, r, b)
	wantEmpty(t, r)
}

func TestAPairTouchesFewCacheLines(t *testing.T) {
	const line = 64
	for of, c := range map[string]struct{ size, lines uintptr }{
		"a record":                       {unsafe.Sizeof(record{}), 1},
		"a tally with its live bytes":    {unsafe.Offsetof(tally{}.in) + uintptr(core.Live+1)*unsafe.Sizeof(sum{}), 1},
		"a stream ledger without tags":   {unsafe.Offsetof(streamLedger{}.base) - unsafe.Offsetof(streamLedger{}.stream), 3},
		"what streams share of a ledger": {unsafe.Offsetof(ledger{}.underflows) - unsafe.Offsetof(ledger{}.limit), 1},
	} {
		if c.size > c.lines*line {
			t.Errorf("%s has %d bytes, more than %d cache lines", of, c.size, c.lines)
		}
	}
}

// A reader that has found the record of a block may come to it when it is another block's.
func TestARecordThatIsUsedAgainIsNotTakenForTheFormerBlocks(t *testing.T) {
	r := newBudget(t, &leaf{}, Config{Limit: mib})
	first := mustAllocate(t, r, core.Request{Bytes: 100, Stream: 1})
	found := r.part.Of(r.records.Find(first.ID))
	mustFree(t, r, first)
	for range 20 { // one of which may have the record
		b := mustAllocate(t, r, core.Request{Bytes: 100, Stream: 1})
		if l := found.lock(first.ID.Generation); l != nil {
			t.Fatalf("the record of a block that is gone leads to a ledger: %p", l)
		}
		l := r.streams.enter(1)
		l.withhold(first.ID.Generation, found, core.Quarantined)
		l.retire(first.ID.Generation, found)
		l.release(first.ID.Generation, found)
		l.mu.Unlock()
		if h := r.Holders(); len(h) != 1 || h[0].State != core.Live || h[0].Bytes != 100 {
			t.Fatalf("holders %+v of one live block", h)
		}
		mustFree(t, r, b)
	}
	wantEmpty(t, r)
}
