package ring_test

import (
	"slices"
	"testing"

	"github.com/fencepost-gpu/fencepost/internal/ring"
)

func TestARingKeepsTheNewestInTheirOrder(t *testing.T) {
	const most = 4
	var r ring.Ring[int]
	for n := range 3*most + 1 {
		gone, full := r.Put(n, most)
		if full != (n >= most) || full && gone != n-most {
			t.Errorf("for %d went %d, %v", n, gone, full)
		}
		var want []int
		for kept := max(0, n-most+1); kept <= n; kept++ {
			want = append(want, kept)
		}
		list := r.List()
		if !slices.Equal(list, want) {
			t.Errorf("after %d: %v", n, list)
		}
		slices.Reverse(want)
		at := 0
		for v := range r.Newest() {
			if *v != want[at] {
				t.Errorf("after %d: %d is number %d from the end", n, *v, at)
			}
			if at++; at == 3 {
				break
			}
		}
		list[0] = -1
		if r.List()[0] == -1 {
			t.Error("a list is the ring's own")
		}
	}
}

func TestAnEmptyRingHasNothing(t *testing.T) {
	var r ring.Ring[string]
	for v := range r.Newest() {
		t.Errorf("an empty ring has %q", *v)
	}
	if len(r.List()) != 0 {
		t.Errorf("an empty ring lists %q", r.List())
	}
}
