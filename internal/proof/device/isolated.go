package device

import (
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/proof/oracle"
)

// MemMap notes whose the addresses are.
func (d *Device) MemMap(ptr, _ uint64, _ driver.MemHandle) error {
	d.mapped[ptr] = d.Block
	return nil
}

// MemUnmap notes that the block is gone, and whether the device had done all that
// uses it. Where nothing is mapped it is an error.
func (d *Device) MemUnmap(ptr, _ uint64) error {
	block, ok := d.mapped[ptr]
	if !ok {
		return driver.NewError("MemUnmap", driver.InvalidValue)
	}
	delete(d.mapped, ptr)
	d.unmapped |= 1 << block
	for i, n := range d.History.Nodes() {
		if n.Kind == oracle.Work && !n.Aborted && (n.Reads|n.Writes)>>block&1 != 0 && !d.isDone(int32(i)) {
			d.torn |= 1 << block
		}
	}
	return nil
}

// Torn reports whether a block was unmapped while the device had not done all
// that uses it.
func (d *Device) Torn(block uint8) bool { return d.torn>>block&1 != 0 }
