package sim

import (
	"fmt"
	"slices"
	"sort"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// reservation is a range of addresses of MemReserve.
type reservation struct {
	ptr, bytes uint64
	mappings   int // that lie in it
	// carved: blocks are cut out of the mappings.
	carved bool
}

func (r *reservation) end() uint64 { return r.ptr + r.bytes }

// reservations are those of a heap, in the order of their addresses.
type reservations struct {
	list   []*reservation
	cursor uint64 // where the newest ends
}

// behind is the place in the list of the first reservation that begins above
// addr.
func (rs *reservations) behind(addr uint64) int {
	return sort.Search(len(rs.list), func(i int) bool { return rs.list[i].ptr > addr })
}

// holding returns the reservation in which all of [ptr, ptr+bytes) lies, nil if
// there is none.
func (rs *reservations) holding(ptr, bytes uint64) *reservation {
	i := rs.behind(ptr)
	if i == 0 {
		return nil
	}
	if r := rs.list[i-1]; bytes <= r.bytes && ptr-r.ptr <= r.bytes-bytes {
		return r
	}
	return nil
}

// room finds addresses in a that are not reserved: above those that were handed
// out last, and below only if there are none.
func (rs *reservations) room(a *arena, bytes uint64) (uint64, bool) {
	for _, from := range [...]uint64{rs.cursor, a.base} {
		i := rs.behind(from)
		if i > 0 {
			from = max(from, rs.list[i-1].end())
		}
		for ; i < len(rs.list) && rs.list[i].ptr-from < bytes; i++ {
			from = rs.list[i].end()
		}
		if bytes <= a.limit-from {
			return from, true
		}
	}
	return 0, false
}

// MemReserve reserves addresses. It does not block.
func (d *Device) MemReserve(bytes uint64) (uint64, error) {
	h, unlock, err := d.lockMapped(mMemReserve)
	if err != nil {
		return 0, err
	}
	defer unlock()
	if bytes == 0 || bytes%Granule != 0 {
		return 0, badSize(mMemReserve, bytes)
	}
	rs := &h.addresses
	ptr, ok := rs.room(h.arena, bytes)
	if !ok {
		return 0, fault(mMemReserve, driver.OutOfMemory, fmt.Sprintf("no %d addresses in a row are left", bytes))
	}
	rs.list = slices.Insert(rs.list, rs.behind(ptr), &reservation{ptr: ptr, bytes: bytes})
	rs.cursor = ptr + bytes
	return ptr, nil
}

// MemUnreserve gives addresses back. It does not block.
func (d *Device) MemUnreserve(ptr, bytes uint64) error {
	h, unlock, err := d.lockMapped(mMemUnreserve)
	if err != nil {
		return err
	}
	defer unlock()
	rs := &h.addresses
	r := rs.holding(ptr, bytes)
	if r == nil || r.ptr != ptr || r.bytes != bytes || r.mappings > 0 {
		return badRange(mMemUnreserve, ptr, bytes, "a reserved range with nothing mapped there")
	}
	i := rs.behind(ptr)
	rs.list = slices.Delete(rs.list, i-1, i)
	return nil
}
