package pages

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/size"
)

var errOverLimit = fmt.Errorf("%w: no more may be held", core.ErrOutOfMemory)

// IsOverLimit reports whether Map failed because of what [Store.SetLimit] or Share bound.
func IsOverLimit(err error) bool { return errors.Is(err, errOverLimit) }

// gather takes pages for some places, which are no hole, out of the spare ones and those that it has the
// device give; it returns how many those are. After an error the places are a hole again. It takes none
// of the spare pages while the device is being asked: a Map that fails there keeps nothing from another.
func (s *Store) gather(at span) (run, uint64, error) {
	var fresh []driver.MemHandle
	for {
		r, missing, err := s.place(at, fresh)
		if err == nil && missing > 0 {
			fresh, err = s.create(missing, fresh)
		}
		switch {
		case err != nil:
			s.mu.Lock()
			s.vacate(run{at, fresh})
			s.mu.Unlock()
			return run{}, 0, s.withUndo(err, s.shed(uint64(len(fresh)), 0))
		case missing == 0:
			return r, uint64(len(fresh)), nil
		}
	}
}

// place takes pages for some places out of the books, or says how many are missing: then
// those are counted as coming. Fresh pages are refused if the limit was lowered below them
// while the device was being asked.
func (s *Store) place(at span, fresh []driver.MemHandle) (r run, missing uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return run{}, 0, fmt.Errorf("mapping pages: the store is %w", core.ErrClosed)
	}
	if have := uint64(len(s.spare) + len(fresh)); have < at.n {
		missing = at.n - have
		s.coming += missing
		if most := s.most(); s.held+s.coming > most/s.page {
			s.coming -= missing
			return run{}, 0, errOverLimit
		}
		return run{}, missing, nil
	}
	if len(fresh) > 0 && s.held+s.coming > s.most()/s.page {
		return run{}, 0, errOverLimit
	}
	kept := len(s.spare) - (int(at.n) - len(fresh))
	r = run{at, slices.Concat(fresh, s.spare[kept:])}
	s.spare = s.spare[:kept]
	return r, 0, nil
}

// create appends to fresh as many of the missing pages as the device gives. If it has no memory for a slab, it is asked
// for pages.
func (s *Store) create(missing uint64, fresh []driver.MemHandle) ([]driver.MemHandle, error) {
	var err error
	before, all := len(fresh), len(fresh)+int(missing)
	pages := uint64(1)
	if missing >= s.SlabsFrom {
		pages = s.SlabPages
	}
	for len(fresh) < all && err == nil {
		if len(fresh)+int(pages) > all {
			pages = 1
		}
		err = s.call(func() error {
			h, err := s.drv.MemCreate(pages * s.page)
			if err == nil {
				fresh = append(fresh, slices.Repeat([]driver.MemHandle{h}, int(pages))...)
			}
			return err
		})
		if pages > 1 && errors.Is(err, core.ErrOutOfMemory) {
			pages, err = 1, nil
		}
	}
	given := uint64(len(fresh) - before)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.coming -= missing
	s.held += given
	s.high = max(s.high, s.held)
	return fresh, err
}

// putIn maps a run. It returns how many pages of it are mapped.
func (s *Store) putIn(r run) (done int, err error) {
	for piece := range pieces(r.handles) {
		if err := s.call(func() error {
			return s.drv.MemMap(s.addr(r.first+uint64(done)), uint64(len(piece))*s.page, piece[0])
		}); err != nil {
			return done, err
		}
		done += len(piece)
	}
	return done, s.call(func() error { return s.drv.MemAccess(s.addr(r.first), r.n*s.page) })
}

// enter gives a run that is mapped to the caller of Map.
func (s *Store) enter(r run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if have, need := uint64(len(s.handles)), r.first+r.n; have < need {
		s.handles = append(s.handles, make([]driver.MemHandle, need-have)...)
	}
	copy(s.handles[r.first:], r.handles)
	s.mapped += r.n
	for piece := range pieces(r.handles) {
		s.slabs = s.slabs || len(piece) > 1
	}
}

// undo takes down the first pages of a run, which are mapped, and gives as many back to the
// device as were created for it. What stays mapped remains for Reap.
func (s *Store) undo(r run, done int, created uint64) error {
	head, tail := r.split(uint64(done))
	err := s.takeDown(head)
	s.mu.Lock()
	s.vacate(tail)
	s.mu.Unlock()
	return cmp.Or(err, s.shed(created, 0))
}

// takeDown makes the pages of a run spare that are mapped and that nobody has. After an error
// they remain.
func (s *Store) takeDown(r run) error {
	if r.n == 0 {
		return nil
	}
	err := s.call(func() error { return s.drv.MemUnmap(s.addr(r.first), r.n*s.page) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.remains = append(s.remains, r)
		return fmt.Errorf("%s at %#x are taken down by a later reap: %w", size.Of(r.n*s.page), s.addr(r.first), err)
	}
	s.vacate(r)
	return nil
}

// takeDownRemains tries that again with all that remains, page by page and slab by slab: those that
// cannot be taken down stand in no other's way. It returns the first error.
func (s *Store) takeDownRemains() (first error) {
	s.mu.Lock()
	remains := s.remains
	s.remains = nil
	s.mu.Unlock()
	for _, r := range remains {
		for piece := range pieces(r.handles) {
			var one run
			one, r = r.split(uint64(len(piece)))
			first = cmp.Or(first, s.takeDown(one))
		}
	}
	return first
}

// takeOut takes pages that a caller of Map has out of the books.
func (s *Store) takeOut(ptr, bytes uint64) (run, error) {
	wrong := func() (run, error) {
		return run{}, invalid("MemUnmap", "%d bytes at %#x are not whole pages and slabs that are mapped", bytes, ptr)
	}
	at, ok := s.span(ptr, bytes)
	if !ok {
		return wrong()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.end() > uint64(len(s.handles)) {
		return wrong()
	}
	mapped := s.handles[at.first:at.end()]
	if slices.Contains(mapped, 0) || !s.isWhole(at) {
		return wrong()
	}
	r := run{at, slices.Clone(mapped)}
	clear(mapped)
	s.mapped -= r.n
	return r, nil
}

// isWhole reports whether no slab lies across an end of places where pages are mapped; mu must be held.
func (s *Store) isWhole(at span) bool {
	first, last := at.first, at.end()-1
	return (first == 0 || s.handles[first-1] != s.handles[first]) &&
		(at.end() == uint64(len(s.handles)) || s.handles[at.end()] != s.handles[last])
}

// vacate makes the pages of a run spare, has its slabs go back to the device, and makes its place a hole; mu must be held.
func (s *Store) vacate(r run) {
	s.keepUnmapped(r.handles)
	s.holes.add(r.span)
}

// keepUnmapped enters what is held and mapped nowhere; mu must be held.
func (s *Store) keepUnmapped(handles []driver.MemHandle) {
	for piece := range pieces(handles) {
		if n := uint64(len(piece)); n > 1 {
			s.down = append(s.down, slab{piece[0], n})
		} else {
			s.spare = append(s.spare, piece[0])
		}
	}
}

// shed gives all slabs that are unmapped back to the device, and then spare pages, oldest first, until keep pages are held:
// at most so many pages with the slabs. What the device does not take back stays, the newest of its kind. The first
// error is returned.
func (s *Store) shed(most, keep uint64) (first error) {
	var refused []driver.MemHandle
	for {
		next, ok := s.oldest(most, keep)
		if !ok {
			break
		}
		err := s.call(func() error { return s.drv.MemRelease(next.handle) })
		s.mu.Lock()
		s.leaving -= next.pages
		if err == nil {
			s.held -= next.pages
			s.released += next.pages
		}
		s.mu.Unlock()
		if err != nil {
			refused, first = append(refused, slices.Repeat([]driver.MemHandle{next.handle}, int(next.pages))...), cmp.Or(first, err)
		}
		most -= min(most, next.pages)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keepUnmapped(refused)
	return first
}

// oldest takes a slab that is unmapped out of the books, or, if there is none, the oldest spare page, if any may go and
// more than keep pages are held without those that leave.
func (s *Store) oldest(most, keep uint64) (next slab, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(s.down) > 0:
		next, s.down = s.down[0], s.down[1:]
	case most == 0 || len(s.spare) == 0 || s.held-s.leaving <= keep:
		return slab{}, false
	default:
		next, s.spare = slab{s.spare[0], 1}, s.spare[1:]
	}
	s.leaving += next.pages
	return next, true
}

// withUndo is the error of a Map, with what undoing it met. On a lost device that says the
// same once more.
func (s *Store) withUndo(err, undone error) error {
	if s.gone.Load() != nil {
		return err
	}
	return errors.Join(err, undone)
}

// call calls the driver, unless the device's context is gone.
func (s *Store) call(f func() error) error {
	if gone := s.gone.Load(); gone != nil {
		return *gone
	}
	err := f()
	if errors.Is(err, core.ErrSticky) || errors.Is(err, core.ErrClosed) {
		s.gone.Store(&err)
	}
	return err
}

func (s *Store) addr(page uint64) uint64 { return s.base + page*s.page }

// span is the places of some addresses, if they are whole pages of the reserved range.
func (s *Store) span(ptr, bytes uint64) (at span, ok bool) {
	if ptr < s.base || ptr > s.end || bytes > s.end-ptr || bytes == 0 || (ptr-s.base)%s.page != 0 || bytes%s.page != 0 {
		return span{}, false
	}
	return span{(ptr - s.base) / s.page, bytes / s.page}, true
}

func (s *Store) noHole(ptr, bytes uint64) error {
	return invalid("MemMap", "%d bytes at %#x are not whole pages of a hole", bytes, ptr)
}

func invalid(op, format string, args ...any) error {
	err := driver.NewError(op, driver.InvalidValue)
	err.Detail = fmt.Sprintf(format, args...)
	return err
}
