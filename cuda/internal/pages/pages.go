// Package pages keeps the physical memory of a pool: pages of one driver handle each, mapped
// at addresses of one reserved range, where they can be moved.
//
// Much memory at a time is taken from the device in slabs: one handle for several pages in a row, which costs the
// driver little more than one page. A slab is mapped once. It is unmapped as a whole, and goes back to the device then.
//
// A page is mapped, at an address that a caller of [Store.Map] has, or spare: held, with no
// address. Map and Unmap move it from one to the other, and its content is undefined after
// that. The handle is kept for the page's life, or it could be mapped only once.
//
// # Locks
//
// No lock is held over a call of the driver. A call first takes what it works on out of
// the books, under the one lock of the store, then calls the driver, then enters
// what came of it. So readers never wait for the driver, and several calls of each
// method may be in the driver at the same time. What one of them is moving another does not see: a
// Map may be refused what an Unmap or a Release has in its hands.
package pages

import (
	"cmp"
	"math"
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// Store is the pages of one pool on one device. Its methods are safe for concurrent use, and
// may block in the driver unless they say otherwise. Errors are the driver's where nothing
// else is said. Once one of them says that the device's context is gone, every call that would
// need the driver returns that error and does not call it.
type Store struct {
	drv             driver.Driver
	page, base, end uint64
	gone            atomic.Pointer[error]

	mu    sync.Mutex
	holes holes
	// handles are by the page's place in the range: zero where nothing is mapped, or where
	// a call is under way.
	handles []driver.MemHandle
	spare   []driver.MemHandle // oldest first
	remains []run              // nobody has it, and the driver did not take it down
	down    []slab             // unmapped, to be given back to the device
	slabs   bool               // some were mapped
	limit   uint64             // in bytes

	// held is what the device has given, high its highest value, mapped what callers have of
	// it, coming what the device is being asked for, and leaving what it is being given back; in
	// pages.
	held, high, mapped, coming, leaving uint64
	// released is how many pages were given back to the device since the beginning.
	released           uint64
	closed, unreserved bool

	// Share, if not nil, is how many bytes may be held besides the limit of SetLimit;
	// math.MaxUint64 is no bound. It is called with the store locked, after what is asked for was
	// counted. It is set before the first Map.
	Share func() uint64

	// SlabPages is how many pages a slab has, and SlabsFrom how many the device must have to give for a Map that takes
	// slabs. They are set before the first Map.
	SlabPages, SlabsFrom uint64
}

// slabPages is 32 MiB in pages of 2 MiB, and slabsFrom 256 MiB: who takes less at a time gives back less, too.
const (
	slabPages = 16
	slabsFrom = 128
)

// slab is the memory of a handle for so many pages.
type slab struct {
	handle driver.MemHandle
	pages  uint64
}

// New reserves so many bytes of addresses, a multiple of page, for pages of so many bytes, a multiple of the
// device's MapGranularity. It takes no memory.
func New(drv driver.Driver, page, addresses uint64) (*Store, error) {
	props, err := drv.Properties()
	if err != nil {
		return nil, err
	}
	if g := props.MapGranularity; g == 0 || page == 0 || page%g != 0 || addresses == 0 || addresses%page != 0 {
		return nil, invalid("MemReserve", "%d bytes of addresses for pages of %d bytes, on a device that maps multiples of %d", addresses, page, g)
	}
	base, err := drv.MemReserve(addresses)
	if err != nil {
		return nil, err
	}
	return &Store{drv: drv, page: page, base: base, end: base + addresses, holes: holes{{0, addresses / page}}, SlabPages: slabPages, SlabsFrom: slabsFrom}, nil
}

// Base is the first of the addresses.
func (s *Store) Base() uint64 { return s.base }

// Holes calls yield for the addresses where no page is, nor is on its way: stretches of whole
// pages, in order, until that returns false. It does not block, and yield calls no method
// of the store.
func (s *Store) Holes(yield func(ptr, bytes uint64) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, hole := range s.holes {
		if !yield(s.addr(hole.first), hole.n*s.page) {
			return
		}
	}
}

// Map maps whole pages in a hole. It uses spare pages, and takes from the device what is missing: so many
// bytes are created. An error for want of the device's memory or of the limit matches [core.ErrOutOfMemory] and says
// which. After an error nothing is mapped, and what the device gave is given back; what the
// driver refuses to take down is kept for Reap, and what it refuses to take back is spare.
func (s *Store) Map(ptr, bytes uint64) (created uint64, err error) {
	fill, err := s.Reserve(ptr, bytes)
	if err != nil {
		return 0, err
	}
	return fill()
}

// Reserve is the part of Map that calls no driver: what it names is no hole any more. It returns the rest, which
// must be called once.
func (s *Store) Reserve(ptr, bytes uint64) (fill func() (created uint64, err error), err error) {
	at, ok := s.span(ptr, bytes)
	if !ok {
		return nil, s.noHole(ptr, bytes)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	hole, ok := s.holes.find(at)
	if !ok {
		return nil, s.noHole(ptr, bytes)
	}
	s.holes.cut(hole, at)
	return func() (uint64, error) { return s.fill(at) }, nil
}

func (s *Store) fill(at span) (created uint64, err error) {
	r, created, err := s.gather(at)
	if err != nil {
		return 0, err
	}
	if done, err := s.putIn(r); err != nil {
		return 0, s.withUndo(err, s.undo(r, done, created))
	}
	s.enter(r)
	return created * s.page, nil
}

// Pieces calls yield for all of a range of mapped pages that Unmap would take: rows of single pages, and each slab that
// lies in the range. It does not block, and yield calls no method of the store.
func (s *Store) Pieces(ptr, bytes uint64, yield func(ptr, bytes uint64, isSlab bool)) {
	at, ok := s.span(ptr, bytes)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.slabs {
		yield(ptr, bytes, false)
		return
	}
	have := uint64(len(s.handles))
	row := span{at.first, 0}
	end := func() {
		if row.n > 0 {
			yield(s.addr(row.first), row.n*s.page, false)
		}
	}
	for piece := range pieces(s.handles[min(at.first, have):min(at.end(), have)]) {
		next := span{row.end(), uint64(len(piece))}
		whole := piece[0] != 0 && s.isWhole(next)
		if whole && next.n == 1 {
			row.n++
			continue
		}
		end()
		if whole {
			yield(s.addr(next.first), next.n*s.page, true)
		}
		row = span{next.end(), 0}
	}
	end()
}

// HasSlabs reports whether there are slabs, or were. It does not block.
func (s *Store) HasSlabs() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slabs
}

// Unmap makes mapped pages spare, and gives slabs back to the device. The device must be done with them: the call waits
// for nothing. ptr and bytes are whole pages and slabs that Map has mapped, in one call or in several. Nobody may
// use them from now on, not after an error either: the driver does not say what an unmap of several pages
// that failed has left. They are held then, as is a slab that the device does not take back, and Reap tries again.
func (s *Store) Unmap(ptr, bytes uint64) error {
	r, err := s.takeOut(ptr, bytes)
	if err != nil {
		return err
	}
	err = cmp.Or(s.takeDown(r), s.shed(0, 0))
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return cmp.Or(err, s.finish())
	}
	return err
}

// Release gives spare pages back to the device, oldest first, until at most so many bytes are held, mapped ones
// included. A page that the device does not take back stays spare, and stands in no
// other's way; the first error is returned.
func (s *Store) Release(keep uint64) error {
	return s.shed(math.MaxUint64, keep/s.page)
}

// SetLimit bounds what is held, in bytes; 0 is no limit. A limit below that takes nothing away:
// Map takes no more from the device until there is room. It does not block.
func (s *Store) SetLimit(bytes uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = bytes
}

// Limit is what may be held, the less of what SetLimit and Share bound; 0 is no limit. It does not
// block.
func (s *Store) Limit() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if most := s.most(); most != math.MaxUint64 {
		return most
	}
	return 0
}

// OwnLimit is what SetLimit bounds; 0 is no limit. It does not block.
func (s *Store) OwnLimit() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limit
}

// most is what may be held, math.MaxUint64 for no limit; mu must be held.
func (s *Store) most() uint64 {
	most := cmp.Or(s.limit, math.MaxUint64)
	if s.Share != nil {
		most = min(most, s.Share())
	}
	return most
}

// HeldAndComing is Held, and what the device is being asked for. It does not block.
func (s *Store) HeldAndComing() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return (s.held + s.coming) * s.page
}

// Held is how many bytes the device has given: those mapped, those spare, and those that a
// call is moving. It does not block.
func (s *Store) Held() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held * s.page
}

// Mapped is how many bytes callers of Map have and did not pass to Unmap. It does not block.
func (s *Store) Mapped() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mapped * s.page
}

// Spare is how many bytes are held, and are mapped nowhere nor on their way: of pages, since slabs go back to the device. It
// does not block.
func (s *Store) Spare() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return uint64(len(s.spare)) * s.page
}

// Released is how many bytes were given back to the device since the beginning. It does not block.
func (s *Store) Released() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.released * s.page
}

// AddTo adds what is held, and the highest value of it, as Reserved and ReservedHigh. It does not
// block.
func (s *Store) AddTo(st *core.Stats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Reserved += s.held * s.page
	st.ReservedHigh += s.high * s.page
}

// Reap tries again to take down what calls of Map and Unmap could not, and to give back slabs and what a closed store
// could not. It returns the first error.
func (s *Store) Reap() error {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return s.finish()
	}
	return cmp.Or(s.takeDownRemains(), s.shed(0, 0))
}

// Close ends Map, with errors that match [core.ErrClosed] from then on, and gives back all that nobody has. The
// caller has ended its calls of Map before. What is mapped stays good: Unmap gives it back to
// the device at once from now on, and the last of it the addresses. After an error Close or Reap tries the rest
// again.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	return s.finish()
}

// finish is what closing the store comes to: it gives back all that nobody has.
func (s *Store) finish() error {
	err := cmp.Or(s.takeDownRemains(), s.Release(0))
	s.mu.Lock()
	if s.unreserved || s.held+s.coming > 0 {
		s.mu.Unlock()
		return err
	}
	s.unreserved = true
	s.mu.Unlock()
	if err = s.call(func() error { return s.drv.MemUnreserve(s.base, s.end-s.base) }); err != nil {
		s.mu.Lock()
		s.unreserved = false
		s.mu.Unlock()
	}
	return err
}
