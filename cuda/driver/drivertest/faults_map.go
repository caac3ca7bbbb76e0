package drivertest

import "github.com/fencepost-gpu/fencepost/cuda/driver"

// MemReserve passes the call on unless a fault is due.
func (f *Faults) MemReserve(bytes uint64) (ptr uint64, err error) {
	if err = f.due(MemReserve); err == nil {
		ptr, err = f.upstream.MemReserve(bytes)
	}
	f.note(Call{Method: MemReserve, Ptr: ptr}, err)
	return ptr, err
}

// MemUnreserve passes the call on unless a fault is due.
func (f *Faults) MemUnreserve(ptr, bytes uint64) (err error) {
	if err = f.due(MemUnreserve); err == nil {
		err = f.upstream.MemUnreserve(ptr, bytes)
	}
	f.note(Call{Method: MemUnreserve, Ptr: ptr}, err)
	return err
}

// MemCreate passes the call on unless a fault is due.
func (f *Faults) MemCreate(bytes uint64) (h driver.MemHandle, err error) {
	if err = f.due(MemCreate); err == nil {
		h, err = f.upstream.MemCreate(bytes)
	}
	f.note(Call{Method: MemCreate}, err)
	return h, err
}

// MemRelease passes the call on unless a fault is due.
func (f *Faults) MemRelease(h driver.MemHandle) (err error) {
	if err = f.due(MemRelease); err == nil {
		err = f.upstream.MemRelease(h)
	}
	f.note(Call{Method: MemRelease}, err)
	return err
}

// MemMap passes the call on unless a fault is due.
func (f *Faults) MemMap(ptr, bytes uint64, h driver.MemHandle) (err error) {
	if err = f.due(MemMap); err == nil {
		err = f.upstream.MemMap(ptr, bytes, h)
	}
	f.note(Call{Method: MemMap, Ptr: ptr}, err)
	return err
}

// MemAccess passes the call on unless a fault is due.
func (f *Faults) MemAccess(ptr, bytes uint64) (err error) {
	if err = f.due(MemAccess); err == nil {
		err = f.upstream.MemAccess(ptr, bytes)
	}
	f.note(Call{Method: MemAccess, Ptr: ptr}, err)
	return err
}

// MemUnmap passes the call on unless a fault is due.
func (f *Faults) MemUnmap(ptr, bytes uint64) (err error) {
	if err = f.due(MemUnmap); err == nil {
		err = f.upstream.MemUnmap(ptr, bytes)
	}
	f.note(Call{Method: MemUnmap, Ptr: ptr}, err)
	return err
}
