package fit

import "math/bits"

// table finds blocks by their addresses: a hash table of chains through the records.
type table struct {
	chains []*record // a power of two of them
	shift  uint      // from a hash to the number of a chain
	n      int
}

const firstChains = 64

func (t *table) chain(ptr uint64) **record {
	return &t.chains[ptr/unit*0x9e3779b97f4a7c15>>(t.shift&63)]
}

func (t *table) insert(r *record) {
	if t.n == len(t.chains) {
		t.grow()
	}
	head := t.chain(r.ptr)
	r.next, *head = *head, r
	t.n++
}

// remove takes the block at an address out and returns it, nil if there is none.
func (t *table) remove(ptr uint64) *record {
	if t.n == 0 {
		return nil
	}
	at := t.chain(ptr)
	for r := *at; r != nil; at, r = &r.next, r.next {
		if r.ptr == ptr {
			*at = r.next
			t.n--
			return r
		}
	}
	return nil
}

func (t *table) grow() {
	old := t.chains
	t.chains = make([]*record, max(firstChains, 2*len(old)))
	t.shift = uint(bits.LeadingZeros64(uint64(len(t.chains)))) + 1
	for _, r := range old {
		for r != nil {
			next, head := r.next, t.chain(r.ptr)
			r.next, *head = *head, r
			r = next
		}
	}
}
