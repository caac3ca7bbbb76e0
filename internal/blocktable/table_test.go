package blocktable

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/fencepost-gpu/fencepost/core"
)

type record struct {
	node Node[record]
	mu   sync.Mutex
	// generation is the record's own idea of what it is of, under its lock.
	generation core.Generation
}

// owner is a table with its lock, and records that are used again.
type owner struct {
	mu    sync.Mutex
	table Table[record]
	spare *sync.Pool
}

func newOwner() *owner { return &owner{spare: &sync.Pool{New: func() any { return new(record) }}} }

func (o *owner) enter(g core.Generation) {
	r := o.spare.Get().(*record)
	r.mu.Lock()
	r.generation = g
	r.mu.Unlock()
	o.mu.Lock()
	r.node.Word.Store(Word(g, 0))
	o.table.Insert(g, &r.node, r)
	o.mu.Unlock()
}

func (o *owner) leave(g core.Generation) bool {
	o.mu.Lock()
	r := o.table.Remove(g)
	o.mu.Unlock()
	if r == nil {
		return false
	}
	r.mu.Lock()
	r.generation = 0
	r.mu.Unlock()
	o.spare.Put(r)
	return true
}

// lookup is how an owner's reader goes about it.
func (o *owner) lookup(g core.Generation) (found bool) {
	if r := o.table.Load(g); r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.generation == g
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.table.Find(g) != nil
}

func TestATableIsAMap(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		o, model := newOwner(), map[core.Generation]bool{}
		newest, stride := core.Generation(0), core.Generation(rapid.SampledFrom([]int{1, 2, 3, 16, 64, 1024, 1 << 20}).Draw(r, "stride"))
		anyOf := func(label string) core.Generation {
			return stride * core.Generation(rapid.IntRange(0, int(newest/stride)+1).Draw(r, label))
		}
		r.Repeat(map[string]func(*rapid.T){
			"enter": func(r *rapid.T) {
				for range rapid.IntRange(1, 100).Draw(r, "how many") {
					newest += stride
					o.enter(newest)
					model[newest] = true
				}
			},
			"leave": func(*rapid.T) {
				g := anyOf("leaving")
				if o.leave(g) != model[g] {
					r.Fatalf("generation %d was removed: %v", g, !model[g])
				}
				delete(model, g)
			},
			"find": func(*rapid.T) {
				g := anyOf("looked for")
				if found := o.table.Find(g); (found != nil) != model[g] || found != nil && found.generation != g {
					r.Fatalf("generation %d: found %v", g, found)
				}
				if found := o.table.Load(g); found != nil && !model[g] {
					r.Fatalf("generation %d is loaded and is not there", g)
				}
			},
			"": func(*rapid.T) {
				if o.table.Len() != len(model) || o.table.Unused() != (newest == 0) {
					r.Fatalf("%d records, want %d", o.table.Len(), len(model))
				}
				seen := 0
				o.table.Each(func(rec *record) {
					if seen++; !model[rec.generation] {
						r.Fatalf("%d is met and is not there", rec.generation)
					}
				})
				if seen != len(model) {
					r.Fatalf("%d of %d were met", seen, len(model))
				}
			},
		})
	})
}

func TestRecordsAtRegularDistancesAreFoundWithoutTheLock(t *testing.T) {
	for _, stride := range []core.Generation{1, 2, 3, 16, 64, 1024, 1 << 20} {
		o := newOwner()
		const n = 1000
		missed := 0
		for i := range core.Generation(n) {
			o.enter(1 + i*stride)
		}
		for i := range core.Generation(n) {
			if o.table.Load(1+i*stride) == nil {
				missed++
			}
		}
		if missed > 0 {
			t.Errorf("stride %d: %d of %d lookups need the lock", stride, missed, n)
		}
	}
}

func TestTheOwnersBitsAreNoPartOfTheKey(t *testing.T) {
	var table Table[record]
	var r record
	r.node.Word.Store(Word(7, 5))
	table.Insert(7, &r.node, &r)
	if !r.node.Word.CompareAndSwap(Word(7, 5), Word(7, 6)) || table.Load(7) != &r || table.Find(7) != &r || r.node.Generation() != 7 {
		t.Error("the owner's bits hide the record")
	}
	if table.Remove(7) != &r || table.Remove(7) != nil {
		t.Error("the record is not removed once")
	}
}

// TestHammerReadersAndOwnersThatShareRecords has two tables that hand each other their
// records, and readers that must find what stays and nothing that went before they
// looked.
func TestHammerReadersAndOwnersThatShareRecords(t *testing.T) {
	const stays, rounds = 50, 3000
	first := newOwner()
	second := &owner{spare: first.spare}
	for g := core.Generation(1); g <= stays; g++ {
		first.enter(g)
	}
	var newest atomic.Uint64
	newest.Store(stays)
	var group sync.WaitGroup
	var over atomic.Bool
	for _, o := range []*owner{first, second} {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(1, 2))
			for i := range rounds {
				n := 1 + rng.IntN(4)
				mine := make([]core.Generation, n)
				for j := range mine {
					mine[j] = core.Generation(newest.Add(1))
					o.enter(mine[j])
				}
				for _, g := range mine {
					if !o.lookup(g) {
						t.Errorf("round %d: generation %d is there and not found", i, g)
					}
					if !o.leave(g) {
						t.Errorf("round %d: generation %d cannot be removed", i, g)
					}
					if o.lookup(g) {
						t.Errorf("round %d: generation %d is gone and found", i, g)
					}
				}
			}
		})
	}
	var readers sync.WaitGroup
	for seed := range uint64(3) {
		readers.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 3))
			for !over.Load() {
				if g := core.Generation(1 + rng.IntN(stays)); !first.lookup(g) {
					t.Errorf("generation %d never left and is not found", g)
				}
				second.lookup(core.Generation(newest.Load()))
				first.table.List(&first.mu, func(g core.Generation, r *record) bool {
					r.mu.Lock()
					defer r.mu.Unlock()
					if g <= stays && r.generation != g {
						t.Errorf("generation %d never left, and its record is of %d", g, r.generation)
					}
					return true
				})
			}
		})
	}
	group.Wait()
	over.Store(true)
	readers.Wait()
	if first.table.Len() != stays || second.table.Len() != 0 {
		t.Errorf("%d and %d are left", first.table.Len(), second.table.Len())
	}
}

// A listing lets others at the table in between, so that may grow under it, more than
// once.
func TestAListingMeetsEachRecordOnceHoweverTheTableGrows(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		random := rand.New(rand.NewPCG(seed, 1))
		o, newest := newOwner(), core.Generation(0)
		enter := func(n int) {
			for range n {
				newest++
				o.enter(newest)
			}
		}
		enter(1 + random.IntN(2000))
		there, met := newest, map[core.Generation]int{}
		o.table.List(&o.mu, func(g core.Generation, _ *record) bool {
			met[g]++
			if newest < 8*there && random.IntN(8) == 0 {
				enter(random.IntN(400))
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
	o := newOwner()
	for g := core.Generation(1); g <= 1000; g++ {
		o.enter(g)
	}
	listed := 0
	if o.table.List(&o.mu, func(core.Generation, *record) bool { listed++; return listed < 7 }) || listed != 7 {
		t.Errorf("%d were listed after it was stopped at 7", listed)
	}
	if !o.table.List(&o.mu, func(core.Generation, *record) bool { listed++; return true }) || listed != 1007 {
		t.Errorf("%d were listed, 1000 are there", listed-7)
	}
}
