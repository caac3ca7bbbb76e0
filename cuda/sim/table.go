package sim

// table maps handles to what they name. A handle carries the number of times
// its slot was used, so one that was given back is never taken for another,
// unless the table is told to hand it out again.
type table[T any] struct {
	slots []tableSlot[T]
	spare []uint32
	live  int
	// again: a slot keeps its handle.
	again bool
}

type tableSlot[T any] struct {
	use   uint32
	value *T
}

const handleBits = 32

// putZero gives value the zero handle, which is never given back.
func (t *table[T]) putZero(value *T) {
	t.slots = append(t.slots, tableSlot[T]{value: value})
}

// put returns a fresh handle, never zero.
func (t *table[T]) put(value *T) uint64 {
	t.live++
	var i uint32
	if n := len(t.spare); n > 0 {
		i, t.spare = t.spare[n-1], t.spare[:n-1]
	} else {
		i = uint32(len(t.slots))
		t.slots = append(t.slots, tableSlot[T]{})
	}
	slot := &t.slots[i]
	if !t.again || slot.use == 0 {
		slot.use++
	}
	slot.value = value
	return uint64(slot.use)<<handleBits | uint64(i)
}

// get returns what a handle names, nil if nothing.
func (t *table[T]) get(handle uint64) *T {
	i := uint32(handle)
	if uint64(i) >= uint64(len(t.slots)) || uint64(t.slots[i].use) != handle>>handleBits {
		return nil
	}
	return t.slots[i].value
}

// take gives a handle back and returns what it named, nil if nothing. The
// zero handle of putZero cannot be given back.
func (t *table[T]) take(handle uint64) *T {
	value := t.get(handle)
	if value == nil || t.slots[uint32(handle)].use == 0 {
		return nil
	}
	t.slots[uint32(handle)].value = nil
	t.spare = append(t.spare, uint32(handle))
	t.live--
	return value
}
