package sim

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// MemsetAsync sets n bytes at ptr to value in the order of s. It does not
// block. An address range that is not mapped is CUDA_ERROR_INVALID_VALUE.
func (d *Device) MemsetAsync(ptr uint64, value byte, n uint64, s driver.Stream) error {
	o := newOp(opMemset, "memset", Writes(ptr, n))
	o.value = value
	return d.transfer(mMemsetAsync, o, s)
}

// CopyToDeviceAsync copies src to dst in the order of s. It does not block.
func (d *Device) CopyToDeviceAsync(dst uint64, src []byte, s driver.Stream) error {
	o := newOp(opToDevice, "copy to device", Writes(dst, uint64(len(src))))
	o.hostBytes = src
	d.touchHost(o, core.Read)
	return d.transfer(mCopyToDeviceAsync, o, s)
}

// CopyToHostAsync copies len(dst) bytes from src in the order of s. It does
// not block.
func (d *Device) CopyToHostAsync(dst []byte, src uint64, s driver.Stream) error {
	o := newOp(opToHost, "copy to host", Reads(src, uint64(len(dst))))
	o.hostBytes = dst
	d.touchHost(o, core.Write)
	return d.transfer(mCopyToHostAsync, o, s)
}

// touchHost adds the host's bytes of a copy, if they are memory of HostAlloc, which kernels and other
// copies reach too. Go's memory has no address on the device.
func (d *Device) touchHost(o *op, access core.Access) {
	if len(o.hostBytes) == 0 {
		return
	}
	pinned := d.host.arena
	at := uintptr(unsafe.Pointer(unsafe.SliceData(o.hostBytes))) - uintptr(unsafe.Pointer(unsafe.SliceData(pinned.mem)))
	if at < uintptr(len(pinned.mem)) {
		o.exec.touches = append(o.exec.touches, Range{Ptr: pinned.base + uint64(at), Bytes: uint64(len(o.hostBytes)), Access: access})
	}
}

// CopyOnDeviceAsync copies n bytes from src to dst, which may overlap, in the
// order of s. It does not block.
func (d *Device) CopyOnDeviceAsync(dst, src, n uint64, s driver.Stream) error {
	return d.transfer(mCopyOnDeviceAsync, newOp(opOnDevice, "copy on device", Writes(dst, n), Reads(src, n)), s)
}

// transfer checks and queues a fill or copy. One of no bytes is nothing.
func (d *Device) transfer(m *method, o *op, h driver.Stream) error {
	s, err := d.lockStream(m, h)
	if err != nil {
		o.recycle()
		return err
	}
	defer d.mu.Unlock()
	if o.exec.touches[0].Bytes == 0 {
		o.recycle()
		return nil
	}
	for _, r := range o.exec.touches {
		if !d.isMapped(r.Ptr, r.Bytes) {
			o.recycle()
			return notAllocated(m, r, d)
		}
		o.uses = d.resolve(s, o, o.uses, r)
	}
	if s.capture != nil {
		return d.record(m, s, o, slices.Clone(o.exec.touches))
	}
	d.push(s, o)
	return nil
}

func notAllocated(m *method, r Range, d *Device) error {
	return fault(m, driver.InvalidValue, fmt.Sprintf("%d bytes at %#x are not all allocated memory of device %d", r.Bytes, r.Ptr, d.Ordinal()))
}

// runTransfer does a fill or copy. Memory that was unmapped since the call
// faults, as on a device.
func (d *Device) runTransfer(o *op) {
	var parts [2][]byte
	for i, r := range o.exec.touches {
		b, ok := d.reach(r.Ptr, r.Bytes)
		if !ok {
			d.illegal(o, r)
			return
		}
		parts[i] = b
	}
	switch o.kind {
	case opMemset:
		fill(parts[0], o.value)
	case opToDevice:
		copy(parts[0], o.hostBytes)
	case opToHost:
		copy(o.hostBytes, parts[0])
	case opFromPeer:
		d.runPeerCopy(o, parts[0])
	case opOnDevice:
		copy(parts[0], parts[1])
	}
	// The read comes first: a copy within one block does both, and a write
	// would cover the read.
	for _, r := range slices.Backward(o.exec.touches) {
		d.judge(o, r)
	}
}

// fill sets all bytes of b.
func fill(b []byte, value byte) {
	if value == 0 {
		clear(b)
		return
	}
	b[0] = value
	repeat(b, 1)
}

// repeat fills b with its first n bytes. It doubles what is set already, which
// runs at the speed of copy.
func repeat(b []byte, n int) {
	for ; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// illegal takes the context for an access to memory that is not mapped. The
// finding names the block whose bound was crossed, or the one that was there, if
// that is known. No lock may be held.
func (d *Device) illegal(o *op, r Range) {
	if of := d.crossedTo(o, r); of != nil {
		from := r.Ptr
		if of.low() <= from && from < of.high() && of.high() < r.Ptr+r.Bytes {
			from = of.high()
		}
		d.report(IllegalAddress, of, o.accessOf(from, r.Ptr+r.Bytes).party(r.Access), Party{})
		d.lose(o, r)
		return
	}
	d.illegalAt(o, r, d.lastAt(r))
}

// lastAt is the newest freed block that held the first byte of a range where
// nothing lives now, or the last byte of the range.
func (d *Device) lastAt(r Range) *block {
	h := d.heapAt(r)
	h.Lock()
	defer h.Unlock()
	dead, _ := h.firstDead(r)
	for _, at := range [...]uint64{dead, r.Ptr + max(r.Bytes, 1) - 1} {
		if h.blockAt(at) != nil {
			continue
		}
		if b := h.history.last(at, anyBlock); b != nil {
			return b
		}
	}
	return nil
}

func (d *Device) illegalAt(o *op, r Range, gone *block) {
	var end Party
	if gone != nil {
		end = gone.lockedFreeParty()
	}
	d.report(IllegalAddress, gone, o.accessOf(r.Ptr, r.Ptr+r.Bytes).party(r.Access), end)
	d.lose(o, r)
}
