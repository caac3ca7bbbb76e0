package sim

import (
	"fmt"
	"strconv"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// table maps handles to what they name. A handle carries the number of times
// its slot was used, so one that was given back is never taken for another,
// unless the table is told to hand it out again.
type table[H ~uint64, T any] struct {
	what  string // its values are called in errors
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
func (t *table[H, T]) putZero(value *T) {
	t.slots = append(t.slots, tableSlot[T]{value: value})
}

// put returns a fresh handle, never zero.
func (t *table[H, T]) put(value *T) H {
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
	return H(slot.use)<<handleBits | H(i)
}

// get returns what a handle names, nil if nothing.
func (t *table[H, T]) get(handle H) *T {
	i := uint32(handle)
	if uint64(i) >= uint64(len(t.slots)) || H(t.slots[i].use) != handle>>handleBits {
		return nil
	}
	return t.slots[i].value
}

// named is get for a call of m, which fails if the handle names nothing.
func (t *table[H, T]) named(m *method, handle H) (*T, error) {
	if value := t.get(handle); value != nil {
		return value, nil
	}
	return nil, unknown(m, t.what, uint64(handle))
}

func unknown(m *method, what string, handle uint64) error {
	return fault(m, driver.InvalidHandle, fmt.Sprintf("%s %s does not exist (any longer)", what, hex(handle)))
}

// take gives a handle back and returns what it named. The zero handle of
// putZero cannot be given back.
func (t *table[H, T]) take(m *method, handle H) (*T, error) {
	value, err := t.named(m, handle)
	if err != nil || handle>>handleBits == 0 {
		return nil, unknown(m, t.what, uint64(handle))
	}
	t.slots[uint32(handle)].value = nil
	t.spare = append(t.spare, uint32(handle))
	t.live--
	return value, nil
}

// lockNamed begins a call of m about what a handle names. The caller unlocks
// the device if there is no error.
func lockNamed[H ~uint64, T any](d *Device, m *method, t *table[H, T], handle H) (*T, error) {
	if err := d.begin(m); err != nil {
		return nil, err
	}
	value := t.get(handle)
	if value == nil {
		d.mu.Unlock()
		return nil, unknown(m, t.what, uint64(handle))
	}
	return value, nil
}

func hex(n uint64) string { return "0x" + strconv.FormatUint(n, 16) }
