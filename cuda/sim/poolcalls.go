package sim

import (
	"fmt"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// lockPool locks the device and the memory; unlock undoes it.
func (d *Device) lockPool(m *method, h driver.Pool) (p *pool, unlock func(), err error) {
	if p, err = lockNamed(d, m, &d.pools, h); err != nil {
		return nil, nil, err
	}
	d.memory.Lock()
	return p, func() { d.memory.Unlock(); d.mu.Unlock() }, nil
}

// PoolCreate makes a pool. It holds no memory at first. Disabling
// ReuseInternalDependencies changes nothing: no pool here makes a stream wait.
func (d *Device) PoolCreate(c driver.PoolConfig) (driver.Pool, error) {
	if err := d.begin(mPoolCreate); err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	if unknown := c.Disable &^ driver.ReuseAll; unknown != 0 {
		return 0, fault(mPoolCreate, driver.InvalidValue, fmt.Sprintf("reuse policies %#x to disable do not exist", uint8(unknown)))
	}
	d.memory.Lock()
	defer d.memory.Unlock()
	return d.pools.put(d.memory.newPool(c)), nil
}

// PoolDestroy gives the handle back. What the pool holds goes back to the
// device as its blocks are freed. The default pool cannot be destroyed.
func (d *Device) PoolDestroy(h driver.Pool) error {
	if h == 0 {
		d.calls[mPoolDestroy.index].n.Add(1)
		return fault(mPoolDestroy, driver.InvalidValue, "the default pool cannot be destroyed")
	}
	p, unlock, err := d.lockPool(mPoolDestroy, h)
	if err != nil {
		return err
	}
	defer unlock()
	_, _ = d.pools.take(mPoolDestroy, h)
	p.destroyed, p.threshold = true, 0
	p.trim(0)
	return nil
}

// PoolStats reads the pool's attributes.
func (d *Device) PoolStats(h driver.Pool) (driver.PoolStats, error) {
	p, unlock, err := d.lockPool(mPoolStats, h)
	if err != nil {
		return driver.PoolStats{}, err
	}
	defer unlock()
	return p.stats, nil
}

// PoolTrim gives granules that no block lies in and whose frees the device has
// passed back, until the pool holds at most keep bytes.
func (d *Device) PoolTrim(h driver.Pool, keep uint64) error {
	p, unlock, err := d.lockPool(mPoolTrim, h)
	if err != nil {
		return err
	}
	defer unlock()
	p.trim(keep)
	return nil
}
