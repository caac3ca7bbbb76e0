package batch

import (
	"context"
	"errors"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/deadline"
)

// Table is the table of one batch in page-locked memory, with the event behind the
// memory's last use. Its owner ends it with Release, or hands it to [NewResults].
type Table struct {
	of    *Memory
	mem   driver.HostMemory
	event driver.Event
	// stream is that of the present batch.
	stream core.StreamID
	// records is the number of records in the table, at the start of the memory;
	// room for as many results may follow.
	records int
	// lost: the device may use the memory for nobody knows how long, so it is
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

// End records the end of the batch, whose kernel was enqueued on s. If that fails s is
// synchronised, so that the memory is known to be unused. It may then block.
func (t *Table) End(s driver.Stream) error {
	err := t.of.drv.EventRecord(t.event, s)
	if err == nil {
		return nil
	}
	if syncErr := t.of.drv.StreamSynchronize(s); syncErr != nil {
		t.lost = true
		return errors.Join(err, syncErr)
	}
	return err
}

// Release gives the memory back once the device is done with it.
func (t *Table) Release() { t.of.park(t) }

// close gives event and memory back, after the device is done with them.
func (t *Table) close(ctx context.Context) error {
	drv := t.of.drv
	if t.event != 0 {
		if err := deadline.Poll(ctx, func() (bool, error) { return drv.EventQuery(t.event) }); err != nil {
			return err
		}
		if err := drv.EventDestroy(t.event); err != nil {
			return err
		}
		t.event = 0
	}
	return drv.HostFree(t.mem)
}
