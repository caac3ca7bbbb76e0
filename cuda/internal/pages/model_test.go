package pages

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
)

const (
	modelCapacity  = 16
	modelPlaces    = 24
	modelSlab      = 3 // pages
	modelSlabsFrom = 5
)

// machine is a store beside the simplest thing that could be one: a list of places.
type machine struct {
	s      *Store
	faults *drivertest.Faults
	d      *device
	taken  [modelPlaces]bool
	held   int
	limit  int // in pages; 0: none
	faulty bool
}

func (m *machine) mapped() (n int) {
	for _, taken := range m.taken {
		if taken {
			n++
		}
	}
	return n
}

// draw draws some places: any, or such that are all taken or all free, if there are any.
func (m *machine) draw(t *rapid.T, taken bool) (first, n int) {
	first, end := rapid.IntRange(0, modelPlaces-1).Draw(t, "first"), modelPlaces
	if at := slices.Index(m.taken[first:], taken); at >= 0 && rapid.Bool().Draw(t, "alike") {
		first += at
		if other := slices.Index(m.taken[first:], !taken); other >= 0 {
			end = first + other
		}
	}
	return first, rapid.IntRange(1, end-first).Draw(t, "places")
}

func (m *machine) Map(t *rapid.T) {
	first, n := m.draw(t, false)
	places := m.taken[first : first+n]
	hole := !slices.Contains(places, true)
	held := max(m.held, m.mapped()+n)
	fits := hole && held <= modelCapacity && (held == m.held || m.limit == 0 || held <= m.limit)
	ptr, bytes := base+uint64(first)*granule, uint64(n)*granule
	_, err := m.s.Map(ptr, bytes)
	if wrong := (err == nil) != fits || err != nil && errors.Is(err, core.ErrOutOfMemory) != hole; wrong && (!m.faulty || !hole) {
		t.Fatalf("%d pages at %d: %v; should fit: %v", n, first, err, fits)
	}
	if err != nil {
		return
	}
	if !m.d.usable(ptr, bytes) {
		t.Fatalf("%d bytes at %#x cannot be used", bytes, ptr)
	}
	slabs := 0
	if missing := held - m.held; missing >= modelSlabsFrom {
		slabs = missing / modelSlab
	}
	for i := range places {
		if got := m.slab(first+i) != 0; got != (i < slabs*modelSlab) && !m.faulty {
			t.Fatalf("%d pages at %d: in a slab at %d: %v; there are to be %d", n, first, first+i, got, slabs)
		}
	}
	for i := range places {
		places[i] = true
	}
	m.held = held
}

func (m *machine) Unmap(t *rapid.T) {
	first, n := m.draw(t, true)
	whole := !slices.Contains(m.taken[first:first+n], false)
	inSlabs := 0
	if whole {
		inSlabs, whole = m.checkPieces(t, first, first+n)
	}
	err := m.s.Unmap(base+uint64(first)*granule, uint64(n)*granule)
	if (err == nil) != whole && (!m.faulty || !whole) {
		t.Fatalf("%d places at %d: %v; whole: %v", n, first, err, whole)
	}
	if whole {
		clear(m.taken[first : first+n])
		m.held -= inSlabs
	}
}

// slab names the slab that a place is of, 0 if it is of none.
func (m *machine) slab(place int) driver.MemHandle { return m.d.slab(base + uint64(place)*granule) }

// checkPieces compares the pieces of mapped places with the device's mappings. It returns how many of the places are of
// slabs, and whether those lie wholly among them.
func (m *machine) checkPieces(t *rapid.T, from, to int) (inSlabs int, whole bool) {
	whole = true
	got := map[int]driver.MemHandle{}
	m.s.Pieces(base+uint64(from)*granule, uint64(to-from)*granule, func(ptr, bytes uint64, isSlab bool) {
		if isSlab && bytes != modelSlab*granule {
			t.Fatalf("a slab of %d bytes", bytes)
		}
		for place := int((ptr - base) / granule); bytes > 0; place, bytes = place+1, bytes-granule {
			got[place] = m.slab(place)
			if (got[place] != 0) != isSlab {
				t.Fatalf("place %d is in a slab: %v", place, isSlab)
			}
		}
	})
	for place := from; place < to; place++ {
		h := m.slab(place)
		within := h == 0 || (from == 0 || m.slab(from-1) != h) && m.slab(to) != h
		if _, ok := got[place]; ok != within {
			t.Fatalf("place %d of %d to %d can be unmapped: %v", place, from, to, ok)
		}
		whole = whole && within
		if h != 0 {
			inSlabs++
		}
	}
	return inSlabs, whole
}

func (m *machine) Release(t *rapid.T) {
	keep := rapid.IntRange(0, modelCapacity).Draw(t, "keep")
	err := m.s.Release(uint64(keep)*granule + uint64(rapid.IntRange(0, granule-1).Draw(t, "more")))
	if err != nil && !m.faulty {
		t.Fatal(err)
	}
	m.held = min(m.held, max(keep, m.mapped()))
}

func (m *machine) SetLimit(t *rapid.T) {
	m.limit = rapid.IntRange(0, modelCapacity+1).Draw(t, "limit")
	m.s.SetLimit(uint64(m.limit) * granule)
}

func (m *machine) Fail(t *rapid.T) {
	m.faulty = true
	m.faults.FailCall(rapid.Uint64Range(1, 12).Draw(t, "call"), rapid.SampledFrom([]int{driver.Unknown, driver.OutOfMemory}).Draw(t, "code"))
}

func (m *machine) FailAll(t *rapid.T) {
	m.faulty = true
	m.faults.FailEvery(rapid.SampledFrom([]drivertest.Method{drivertest.MemMap, drivertest.MemAccess, drivertest.MemUnmap, drivertest.MemRelease, drivertest.MemCreate}).Draw(t, "method"), driver.Unknown)
}

// Mend ends the faults, and demands that a reap leaves nothing of them.
func (m *machine) Mend(t *rapid.T) {
	m.faults.Clear()
	m.faulty = false
	if err := m.s.Reap(); err != nil || len(m.s.remains)+len(m.s.down) > 0 {
		t.Fatalf("reaped: %v, %d remain, %d are down", err, len(m.s.remains), len(m.s.down))
	}
	m.held = int(m.s.Held() / granule) // what was refused is spare
}

func (m *machine) Check(t *rapid.T) {
	check(t, m.s, m.d)
	if got := int(m.s.Mapped() / granule); got != m.mapped() {
		t.Fatalf("%d pages are mapped, not %d", got, m.mapped())
	}
	if got := int(m.s.Held() / granule); !m.faulty && got != m.held {
		t.Fatalf("%d pages are held, not %d", got, m.held)
	}
}

func TestTheStoreIsAListOfPlaces(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &machine{}
		m.s, m.faults, m.d = newStore(t, modelCapacity, modelPlaces)
		m.s.SlabPages, m.s.SlabsFrom = modelSlab, modelSlabsFrom
		rt.Repeat(map[string]func(*rapid.T){"": m.Check, "map": m.Map, "unmap": m.Unmap, "release": m.Release,
			"set limit": m.SetLimit, "fail": m.Fail, "fail all": m.FailAll, "mend": m.Mend, "mend again": m.Mend})
		m.Mend(rt)
		if err := m.s.Close(); err != nil {
			rt.Fatal(err)
		}
		for place := 0; place < modelPlaces; place++ {
			if !m.taken[place] {
				continue
			}
			pages := 1
			if m.slab(place) != 0 {
				pages = modelSlab
			}
			if err := m.s.Unmap(base+uint64(place)*granule, uint64(pages)*granule); err != nil {
				rt.Fatal(err)
			}
			place += pages - 1
		}
		checkGone(rt, m.s, m.d)
	})
}

// A Map that fails at any call of any kind, some of its pages mapped, leaves what there was.
func TestAMapThatFailsHalfwayChangesNothing(t *testing.T) {
	for _, method := range []drivertest.Method{drivertest.MemCreate, drivertest.MemMap, drivertest.MemAccess} {
		for call := uint64(1); ; call++ {
			s, faults, d := newStore(t, 8, 16)
			a := mustMap(t, s, d, 5)
			must(t, s.Unmap(a+granule, 2*granule))
			faults.FailMethod(method, call, driver.OutOfMemory)
			_, _, err := mapLowest(s, 5*granule) // two spare, three new
			if err == nil {
				if want := map[drivertest.Method]uint64{drivertest.MemCreate: 4, drivertest.MemMap: 6, drivertest.MemAccess: 2}[method]; call != want {
					t.Errorf("%d calls of %v, not %d", call-1, method, want-1)
				}
				break
			}
			if !errors.Is(err, core.ErrOutOfMemory) || s.Held() != 5*granule || s.Mapped() != 3*granule {
				t.Errorf("call %d of %v: %v; %d held, %d mapped", call, method, err, s.Held(), s.Mapped())
			}
			check(t, s, d)
			mustMap(t, s, d, 5)
		}
	}
}

// Many at a time map, unmap, trim, change the limit and read, beside calls that fail now and
// then: at the end nothing is lost, and never was more held than the limit.
func TestNothingIsLostBetweenManyAtATime(t *testing.T) {
	const workers, capacity, limit = 8, 64, 48
	s, faults, d := newStore(t, capacity, 256)
	s.SetLimit(limit * granule)
	s.SlabPages, s.SlabsFrom = 2, 4
	d.overlapping = true
	var group sync.WaitGroup
	done := make(chan struct{})
	granted, refused := make([]int, workers), make([]int, workers)
	for w := range workers {
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(w), 17))
			type had struct{ ptr, bytes uint64 }
			var mine []had
			for range 2000 {
				if len(mine) == 2 || len(mine) > 0 && random.IntN(2) == 0 {
					i := random.IntN(len(mine))
					_ = s.Unmap(mine[i].ptr, mine[i].bytes) // a fault that was planned: reaped
					mine[i] = mine[len(mine)-1]
					mine = mine[:len(mine)-1]
					continue
				}
				ptr, n, err := mapLowest(s, (1+random.Uint64N(8))*granule)
				switch {
				case err != nil:
					refused[w]++
				case !d.usable(ptr, n):
					t.Errorf("%d bytes at %#x cannot be used", n, ptr)
				default:
					granted[w]++
					mine = append(mine, had{ptr, n})
				}
			}
			for _, m := range mine {
				_ = s.Unmap(m.ptr, m.bytes)
			}
		})
	}
	var others sync.WaitGroup
	others.Go(func() {
		random := rand.New(rand.NewPCG(99, 17))
		for {
			select {
			case <-done:
				return
			default:
			}
			_ = s.Release(random.Uint64N(limit) * granule)
			_ = s.Reap()
			faults.FailCall(1+random.Uint64N(40), driver.Unknown)
			if held := s.Held(); held > limit*granule || s.Mapped() > limit*granule {
				t.Errorf("%d bytes are held", held)
			}
			runtime.Gosched()
		}
	})
	group.Wait()
	close(done)
	others.Wait()
	faults.Clear()
	must(t, s.Reap())
	check(t, s, d)
	if s.Mapped() != 0 || d.peak > limit {
		t.Errorf("%d bytes are mapped; at most %d pages were held", s.Mapped(), d.peak)
	}
	must(t, s.Close())
	checkGone(t, s, d)
	sum := func(all []int) (n int) {
		for _, one := range all {
			n += one
		}
		return n
	}
	if sum(granted) < 1000 || sum(refused) < 10 {
		t.Errorf("granted %d, refused %d", granted, refused)
	}
}

// Addresses eight times the memory never were too fragmented for a run that had the memory:
// sizes that come at random, and each time half of what is mapped goes.
func TestAddressesDoNotRunOutBeforeMemory(t *testing.T) {
	const capacity = 512
	s, _, d := newStore(t, capacity, 8*capacity)
	random := rand.New(rand.NewPCG(1, 2))
	type had struct{ ptr, bytes uint64 }
	var all []had
	for range 200 {
		for {
			ptr, n, err := mapLowest(s, (1+random.Uint64N(64))*granule)
			if err != nil {
				var byDriver *core.DriverError
				if !errors.As(err, &byDriver) {
					t.Fatal(err)
				}
				break
			}
			all = append(all, had{ptr, n})
		}
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		for _, a := range all[len(all)/2:] {
			must(t, s.Unmap(a.ptr, a.bytes))
		}
		all = all[:len(all)/2]
	}
	check(t, s, d)
}

// A grow, and a move of pages, beside so many holes. On a device the driver's calls take
// some 10 µs each.
func BenchmarkMap(b *testing.B) {
	for name, run := range map[string]struct{ holes, pages uint64 }{"pages=1/holes=0": {0, 1}, "pages=16/holes=0": {0, 16}, "pages=16/holes=1000": {1000, 16}} {
		b.Run(name, func(b *testing.B) {
			s, err := New(&drivertest.Null{}, 2<<20, 1<<40)
			must(b, err)
			ptr, _, err := mapLowest(s, max(1, 2*run.holes)*2<<20)
			must(b, err)
			for i := range run.holes {
				must(b, s.Unmap(ptr+2*i<<21, 2<<20))
			}
			for b.Loop() {
				at, n, err := mapLowest(s, run.pages*2<<20)
				if err != nil {
					b.Fatal(err)
				}
				if err := s.Unmap(at, n); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
