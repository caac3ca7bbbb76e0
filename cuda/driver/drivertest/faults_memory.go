package drivertest

import "github.com/fencepost-gpu/fencepost/cuda/driver"

// MemInfo passes the call on unless a fault is due.
func (f *Faults) MemInfo() (free, total uint64, err error) {
	if err = f.due(MemInfo); err == nil {
		free, total, err = f.upstream.MemInfo()
	}
	f.note(Call{Method: MemInfo}, err)
	return free, total, err
}

// MemAlloc passes the call on unless a fault is due.
func (f *Faults) MemAlloc(bytes uint64) (ptr uint64, err error) {
	if err = f.due(MemAlloc); err == nil {
		ptr, err = f.upstream.MemAlloc(bytes)
	}
	f.note(Call{Method: MemAlloc, Ptr: ptr}, err)
	return ptr, err
}

// MemFree passes the call on unless a fault is due.
func (f *Faults) MemFree(ptr uint64) (err error) {
	if err = f.due(MemFree); err == nil {
		err = f.upstream.MemFree(ptr)
	}
	f.note(Call{Method: MemFree, Ptr: ptr}, err)
	return err
}

// MemAllocAsync passes the call on unless a fault is due.
func (f *Faults) MemAllocAsync(bytes uint64, pool driver.Pool, s driver.Stream) (ptr uint64, err error) {
	if err = f.due(MemAllocAsync); err == nil {
		ptr, err = f.upstream.MemAllocAsync(bytes, pool, s)
	}
	f.note(Call{Method: MemAllocAsync, Ptr: ptr, Stream: s}, err)
	return ptr, err
}

// MemFreeAsync passes the call on unless a fault is due.
func (f *Faults) MemFreeAsync(ptr uint64, s driver.Stream) (err error) {
	if err = f.due(MemFreeAsync); err == nil {
		err = f.upstream.MemFreeAsync(ptr, s)
	}
	f.note(Call{Method: MemFreeAsync, Ptr: ptr, Stream: s}, err)
	return err
}

// HostAlloc passes the call on unless a fault is due.
func (f *Faults) HostAlloc(bytes uint64) (m driver.HostMemory, err error) {
	if err = f.due(HostAlloc); err == nil {
		m, err = f.upstream.HostAlloc(bytes)
	}
	f.note(Call{Method: HostAlloc, Ptr: m.DevicePtr}, err)
	return m, err
}

// HostFree passes the call on unless a fault is due.
func (f *Faults) HostFree(m driver.HostMemory) (err error) {
	if err = f.due(HostFree); err == nil {
		err = f.upstream.HostFree(m)
	}
	f.note(Call{Method: HostFree, Ptr: m.DevicePtr}, err)
	return err
}

// MemsetAsync passes the call on unless a fault is due.
func (f *Faults) MemsetAsync(ptr uint64, value byte, n uint64, s driver.Stream) (err error) {
	if err = f.due(MemsetAsync); err == nil {
		err = f.upstream.MemsetAsync(ptr, value, n, s)
	}
	f.note(Call{Method: MemsetAsync, Ptr: ptr, Stream: s}, err)
	return err
}

// CopyToDeviceAsync passes the call on unless a fault is due.
func (f *Faults) CopyToDeviceAsync(dst uint64, src []byte, s driver.Stream) (err error) {
	if err = f.due(CopyToDeviceAsync); err == nil {
		err = f.upstream.CopyToDeviceAsync(dst, src, s)
	}
	f.note(Call{Method: CopyToDeviceAsync, Ptr: dst, Stream: s}, err)
	return err
}

// CopyToHostAsync passes the call on unless a fault is due.
func (f *Faults) CopyToHostAsync(dst []byte, src uint64, s driver.Stream) (err error) {
	if err = f.due(CopyToHostAsync); err == nil {
		err = f.upstream.CopyToHostAsync(dst, src, s)
	}
	f.note(Call{Method: CopyToHostAsync, Ptr: src, Stream: s}, err)
	return err
}

// CopyOnDeviceAsync passes the call on unless a fault is due.
func (f *Faults) CopyOnDeviceAsync(dst, src, n uint64, s driver.Stream) (err error) {
	if err = f.due(CopyOnDeviceAsync); err == nil {
		err = f.upstream.CopyOnDeviceAsync(dst, src, n, s)
	}
	f.note(Call{Method: CopyOnDeviceAsync, Ptr: dst, Stream: s}, err)
	return err
}

// PoolCreate passes the call on unless a fault is due.
func (f *Faults) PoolCreate(c driver.PoolConfig) (p driver.Pool, err error) {
	if err = f.due(PoolCreate); err == nil {
		p, err = f.upstream.PoolCreate(c)
	}
	f.note(Call{Method: PoolCreate}, err)
	return p, err
}

// PoolDestroy passes the call on unless a fault is due.
func (f *Faults) PoolDestroy(p driver.Pool) (err error) {
	if err = f.due(PoolDestroy); err == nil {
		err = f.upstream.PoolDestroy(p)
	}
	f.note(Call{Method: PoolDestroy}, err)
	return err
}

// PoolStats passes the call on unless a fault is due.
func (f *Faults) PoolStats(p driver.Pool) (stats driver.PoolStats, err error) {
	if err = f.due(PoolStats); err == nil {
		stats, err = f.upstream.PoolStats(p)
	}
	f.note(Call{Method: PoolStats}, err)
	return stats, err
}

// PoolTrim passes the call on unless a fault is due.
func (f *Faults) PoolTrim(p driver.Pool, keep uint64) (err error) {
	if err = f.due(PoolTrim); err == nil {
		err = f.upstream.PoolTrim(p, keep)
	}
	f.note(Call{Method: PoolTrim}, err)
	return err
}
