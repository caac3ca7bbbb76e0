// Package ring keeps the newest of many values.
package ring

import (
	"iter"
	"slices"
)

// Ring is the newest values that were put into it. The zero Ring is empty and ready
// for use. It is not safe for concurrent use.
type Ring[T any] struct {
	all  []T
	next int // where the oldest is, once there are as many as there may be
}

// Put takes v in, and returns the oldest value if it had to go for it. The ring keeps
// most values and no more; that must be the same number each time.
func (r *Ring[T]) Put(v T, most int) (gone T, full bool) {
	place, full := r.Next(most)
	gone, *place = *place, v
	return gone, full
}

// Next is where the next value goes, for a caller who writes it there before anything
// else is asked of the ring. The oldest value is still there if it has to go for it.
func (r *Ring[T]) Next(most int) (place *T, full bool) {
	if len(r.all) < most {
		var none T
		r.all = append(r.all, none)
		return &r.all[len(r.all)-1], false
	}
	place = &r.all[r.next]
	if r.next++; r.next == most {
		r.next = 0
	}
	return place, true
}

// Newest yields the values in their places, the newest first.
func (r *Ring[T]) Newest() iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for _, part := range [][]T{r.all[:r.next], r.all[r.next:]} {
			for i := len(part) - 1; i >= 0; i-- {
				if !yield(&part[i]) {
					return
				}
			}
		}
	}
}

// List is the values, oldest first. The slice is the caller's.
func (r *Ring[T]) List() []T { return append(slices.Clone(r.all[r.next:]), r.all[:r.next]...) }
