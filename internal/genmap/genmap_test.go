package genmap_test

import (
	"maps"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/genmap"
)

func TestZeroMapIsEmpty(t *testing.T) {
	var m genmap.Map[int]
	if v, ok := m.Load(1); ok || v != 0 {
		t.Errorf("Load of an empty map: %d, %v", v, ok)
	}
	if v, ok := m.Delete(1); ok || v != 0 {
		t.Errorf("Delete of an empty map: %d, %v", v, ok)
	}
	m.All(func(g core.Generation, v int) bool {
		t.Errorf("All of an empty map: %v, %d", g, v)
		return true
	})
	if m.Len() != 0 {
		t.Errorf("Len of an empty map: %d", m.Len())
	}
}

func TestUpdate(t *testing.T) {
	var m genmap.Map[string]
	step := func(want string, wantOK bool, next string, keep bool) {
		t.Helper()
		calls := 0
		m.Update(5, func(v string, ok bool) (string, bool) {
			calls++
			if v != want || ok != wantOK {
				t.Errorf("Update was given %q, %v, want %q, %v", v, ok, want, wantOK)
			}
			return next, keep
		})
		if calls != 1 {
			t.Errorf("Update called its function %d times", calls)
		}
	}
	step("", false, "ignored", false)
	step("", false, "one", true)
	step("one", true, "two", true)
	if v, _ := m.Load(5); v != "two" {
		t.Errorf("after the updates the value is %q", v)
	}
	step("two", true, "", false)
	if m.Len() != 0 {
		t.Errorf("after the removal %d entries are left", m.Len())
	}
}

// A panic in the function must not leave the shard locked.
func TestUpdateSurvivesAPanic(t *testing.T) {
	var m genmap.Map[int]
	m.Store(5, 1)
	func() {
		defer func() { _ = recover() }()
		m.Update(5, func(int, bool) (int, bool) { panic("in change") })
	}()
	if v, ok := m.Load(5); v != 1 || !ok {
		t.Errorf("after the panic: %d, %v", v, ok)
	}
}

// TestAgainstAPlainMap runs a random program over both.
func TestAgainstAPlainMap(t *testing.T) {
	var m genmap.Map[int]
	want := map[core.Generation]int{}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 20000 {
		g := core.Generation(rng.Uint64N(300))
		switch rng.IntN(4) {
		case 0, 1:
			m.Store(g, i)
			want[g] = i
		case 2:
			v, ok := m.Delete(g)
			if wantV, wantOK := want[g]; v != wantV || ok != wantOK {
				t.Fatalf("Delete(%v): %d, %v, want %d, %v", g, v, ok, wantV, wantOK)
			}
			delete(want, g)
		case 3:
			v, ok := m.Load(g)
			if wantV, wantOK := want[g]; v != wantV || ok != wantOK {
				t.Fatalf("Load(%v): %d, %v, want %d, %v", g, v, ok, wantV, wantOK)
			}
		}
		if m.Len() != len(want) {
			t.Fatalf("Len: %d, want %d", m.Len(), len(want))
		}
	}
	if got := maps.Collect(m.All); !maps.Equal(got, want) {
		t.Errorf("All: %v, want %v", got, want)
	}
}

func TestAllStopsAndHoldsNoLock(t *testing.T) {
	var m genmap.Map[int]
	for g := range core.Generation(200) {
		m.Store(g, 1)
	}
	visits := 0
	for g := range m.All {
		visits++
		m.Delete(g) // would deadlock under a lock
		if visits == 150 {
			break
		}
	}
	if visits != 150 || m.Len() != 50 {
		t.Errorf("%d visits left %d entries, want 150 and 50", visits, m.Len())
	}
}

func TestMapAllocatesNothingOnTheHotPath(t *testing.T) {
	var m genmap.Map[*int]
	v := new(int)
	m.Store(7, v)
	n := testing.AllocsPerRun(1000, func() {
		m.Store(7, v)
		if got, ok := m.Load(7); got != v || !ok {
			t.Fatal("the value is gone")
		}
		m.Delete(7)
	})
	if n != 0 {
		t.Errorf("store, load and delete allocate %v times", n)
	}
}

// TestHammer counts up entries from many goroutines, which share all of them.
func TestHammer(t *testing.T) {
	const goroutines, rounds, generations = 8, 3000, 100
	var m genmap.Map[int]
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 0))
			for range rounds {
				m.Update(core.Generation(rng.Uint64N(generations)), func(v int, _ bool) (int, bool) { return v + 1, true })
			}
		})
	}
	wg.Go(func() {
		for range 200 {
			m.All(func(core.Generation, int) bool { return true })
			m.Len()
		}
	})
	wg.Wait()
	sum := 0
	for _, v := range m.All {
		sum += v
	}
	if sum != goroutines*rounds {
		t.Errorf("%d updates were kept of %d", sum, goroutines*rounds)
	}
}

// TestEachEntryIsTakenOnce lets goroutines race for the same entries.
func TestEachEntryIsTakenOnce(t *testing.T) {
	const goroutines, generations = 8, 2000
	var m genmap.Map[int]
	for g := range core.Generation(generations) {
		m.Store(g, int(g))
	}
	taken := make([]int, goroutines)
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Go(func() {
			for g := range core.Generation(generations) {
				if v, ok := m.Delete(g); ok {
					taken[i]++
					if v != int(g) {
						t.Errorf("Delete(%v) returned the value %d", g, v)
					}
				}
			}
		})
	}
	wg.Wait()
	sum := 0
	for _, n := range taken {
		sum += n
	}
	if sum != generations || m.Len() != 0 {
		t.Errorf("%d entries were taken of %d, %d are left", sum, generations, m.Len())
	}
}

func BenchmarkUpdateParallel(b *testing.B) {
	var m genmap.Map[int]
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		g := core.NextGeneration()
		for pb.Next() {
			m.Update(g, func(v int, _ bool) (int, bool) { return v + 1, true })
		}
	})
}
