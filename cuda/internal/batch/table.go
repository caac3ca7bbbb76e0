package batch

import (
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// Table is the table of one batch in page-locked memory, with the event behind the
// memory's last use. Its owner ends it with [Memory.Release], or hands it to [NewResults].
type Table struct {
	mem   driver.HostMemory
	event driver.Event
	// stream is that of the present batch.
	stream core.StreamID
	// records is the number of records in the table, at the start of the memory;
	// room for as many results may follow.
	records int
	// lost: the device may use the memory for an unknown time, so it is
	// not used again before Close.
	lost bool
}

// Records is the number of records.
func (t *Table) Records() int { return t.records }

// Ptr is the table's address for kernels, ResultsPtr that of the results.
func (t *Table) Ptr() uint64 { return t.mem.DevicePtr }

// ResultsPtr is the address of the results for kernels.
func (t *Table) ResultsPtr() uint64 { return t.mem.DevicePtr + uint64(t.records)*driver.GuardRecord }

// table is the part of the memory that holds the regions, results the part behind.
func (t *Table) table() []byte { return t.mem.Bytes[:t.records*driver.GuardRecord] }

func (t *Table) results() []byte {
	return t.mem.Bytes[t.records*driver.GuardRecord:][:t.records*driver.GuardRecord]
}
