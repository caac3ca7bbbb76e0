package sim

import (
	"runtime/debug"
	"slices"

	"github.com/fencepost-gpu/fencepost/core"
)

// runRevocable runs an entry where memory that is given back must not be
// touched (pages.revokes). An unmap and a shrinking pool wait for nothing, so
// they may take the memory from under an operation that nothing orders before
// them. That is then an access of memory that is not mapped, as on a device.
func (d *Device) runRevocable(o *op) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		r, ok := d.taken(o, p)
		if !ok {
			panic(p) //nolint:forbidigo // repanic
		}
		d.illegal(o, r)
	}()
	d.perform(o)
}

// taken finds what an operation touched whose panic is a fault on the device's
// bytes, or on those of the device that it copies from.
func (d *Device) taken(o *op, panicked any) (r Range, ok bool) {
	fault, ok := panicked.(interface{ Addr() uintptr })
	if !ok {
		return r, false
	}
	ptr, ok := d.addressOf(fault.Addr())
	if !ok && o.peer != nil {
		ptr, ok = o.peer.addressOf(fault.Addr())
	}
	if !ok {
		return r, false
	}
	for _, r := range slices.Backward(o.exec.touches) {
		if ptr >= r.Ptr && ptr-r.Ptr < r.Bytes {
			return r, true
		}
	}
	return Range{ptr, 1, core.Read}, true
}

// addressOf is the device's address of a byte of its memory.
func (d *Device) addressOf(byteAt uintptr) (ptr uint64, ok bool) {
	for _, h := range d.heaps() {
		if ptr, ok = h.arena.holds(byteAt); ok {
			return ptr, true
		}
	}
	return 0, false
}
