package cuda

import (
	"context"
	"errors"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// staging is page-locked memory through which one batch talks to the device,
// and the event behind its last use.
type staging struct {
	mem   driver.HostMemory
	event driver.Event
	// stream is that of the present batch.
	stream core.StreamID
	// records is the number of records in the present batch's table, at the
	// start of the memory; room for as many results may follow.
	records int
	// lost: the device may use the memory for nobody knows how long, so it is
	// not used again before Close.
	lost bool
}

// close gives event and memory back, after the device is done with them.
func (st *staging) close(ctx context.Context, drv driver.Driver) error {
	if st.event != 0 {
		if err := poll(ctx, func() (bool, error) { return drv.EventQuery(st.event) }); err != nil {
			return err
		}
		if err := drv.EventDestroy(st.event); err != nil {
			return err
		}
		st.event = 0
	}
	return drv.HostFree(st.mem)
}

// minStaging is the smallest staging memory in records, so that most batches
// fit most memories.
const minStaging = 64

// stage returns memory with the table of the regions at its start, and room
// for tables of that size in all.
func (d *DeviceOps) stage(stream core.StreamID, regions []core.Region, tables int, content recordContent) (*staging, error) {
	size := pieceBytes(regions)
	records := countPieces(regions, size)
	st, err := d.take(stream, tables*records*driver.GuardRecord)
	if err != nil {
		return nil, err
	}
	st.records = records
	writePieces(st.table(), regions, size, content)
	return st, nil
}

// table is the part of the memory that holds the regions.
func (st *staging) table() []byte { return st.mem.Bytes[:st.records*driver.GuardRecord] }

// results is the part behind the table.
func (st *staging) results() []byte {
	return st.mem.Bytes[st.records*driver.GuardRecord:][:st.records*driver.GuardRecord]
}

// resultsPtr is its address for kernels.
func (st *staging) resultsPtr() uint64 {
	return st.mem.DevicePtr + uint64(st.records)*driver.GuardRecord
}

// take returns idle memory of at least size bytes for a batch on stream, or
// makes some. The device is asked what it is done with only if there is none.
func (d *DeviceOps) take(stream core.StreamID, size int) (*staging, error) {
	if st := d.memory.take(d.drv, stream, size); st != nil {
		st.stream = stream
		return st, nil
	}
	event, err := d.drv.EventCreate()
	if err != nil {
		return nil, err
	}
	mem, err := d.drv.HostAlloc(uint64(max(size, minStaging*driver.GuardRecord)))
	if err != nil {
		return nil, errors.Join(err, d.drv.EventDestroy(event))
	}
	return &staging{mem: mem, event: event, stream: stream}, nil
}
