package batch

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/deviceops"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/deadline"
)

// Memory is the page-locked memory of a device's batches. It is safe for concurrent
// use and must be closed.
type Memory struct {
	drv driver.Driver

	mu sync.Mutex
	// idle are memories that nothing uses, lines those that the device may still
	// read, behind the batches of their stream.
	idle  []*Table
	lines map[core.StreamID][]*Table
	// lost are those that the device may use for an unknown time: they are
	// not used again.
	lost []*Table
}

// NewMemory returns memory of drv's. It makes no call of the driver's.
func NewMemory(drv driver.Driver) *Memory {
	return &Memory{drv: drv, lines: map[core.StreamID][]*Table{}}
}

// minRecords is the smallest memory in records, so that most batches fit most
// memories.
const minRecords = 64

// Stage returns memory with the table of the regions, for a batch on stream. Of one
// with results there is room for as many records behind the table, which say that
// nothing differs. It may block in the driver.
func (m *Memory) Stage(stream core.StreamID, regions []deviceops.Region, content Content, results bool) (*Table, error) {
	size := pieceBytes(regions)
	records := countPieces(regions, size)
	tables := 1
	if results {
		tables = 2
	}
	t, err := m.take(stream, tables*records*driver.GuardRecord)
	if err != nil {
		return nil, err
	}
	t.stream, t.records = stream, records
	writePieces(t.table(), regions, size, content)
	if results {
		presetResults(t.results())
	}
	return t, nil
}

// take returns idle memory of at least size bytes for a batch on stream, or
// makes some. The device is asked what it is done with only if there is none.
func (m *Memory) take(stream core.StreamID, size int) (*Table, error) {
	if t := m.takeIdle(stream, size); t != nil {
		return t, nil
	}
	event, err := m.drv.EventCreate()
	if err != nil {
		return nil, err
	}
	mem, err := m.drv.HostAlloc(uint64(max(size, minRecords*driver.GuardRecord)))
	if err != nil {
		return nil, errors.Join(err, m.drv.EventDestroy(event))
	}
	return &Table{mem: mem, event: event}, nil
}

// looks is how many memories of a line are asked about at a time, and how many
// lines of other streams if one's own has none to give.
const looks = 4

// takeIdle returns idle memory of at least size bytes, nil if there is none.
func (m *Memory) takeIdle(stream core.StreamID, size int) *Table {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.pick(size); t != nil {
		return t
	}
	m.collect(stream)
	if t := m.pick(size); t != nil {
		return t
	}
	queried := 0
	for other := range m.lines {
		if queried == looks {
			break
		}
		if other != stream {
			m.collect(other)
			queried++
		}
	}
	return m.pick(size)
}

// pick takes the memory used last of what is idle and large enough; mu must
// be held.
func (m *Memory) pick(size int) *Table {
	for i, t := range slices.Backward(m.idle) {
		if len(t.mem.Bytes) >= size {
			m.idle = slices.Delete(m.idle, i, i+1)
			return t
		}
	}
	return nil
}

// collect moves some of what the device is done with from the head of a line
// to the idle ones; mu must be held. What cannot be asked about stays where it is.
func (m *Memory) collect(stream core.StreamID) {
	line := m.lines[stream]
	for range min(looks, len(line)) {
		if done, err := m.drv.EventQuery(line[0].event); !done || err != nil {
			break
		}
		m.idle = append(m.idle, line[0])
		line[0], line = nil, line[1:]
	}
	if len(line) == 0 {
		delete(m.lines, stream)
		return
	}
	m.lines[stream] = line
}

// End records the end of the batch of t, whose kernel was enqueued on s. If that fails s is
// synchronised, so that the memory is known to be unused. It may then block.
func (m *Memory) End(t *Table, s driver.Stream) error {
	err := m.drv.EventRecord(t.event, s)
	if err == nil {
		return nil
	}
	if syncErr := m.drv.StreamSynchronize(s); syncErr != nil {
		t.lost = true
		return errors.Join(err, syncErr)
	}
	return err
}

// Release takes memory back until its event is completed, or apart if nothing will say
// when.
func (m *Memory) Release(t *Table) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t.lost {
		m.lost = append(m.lost, t)
		return
	}
	m.lines[t.stream] = append(m.lines[t.stream], t)
}

// rest takes memory back that the device is known to be done with.
func (m *Memory) rest(t *Table) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.idle = append(m.idle, t)
}

// Close waits for the batches until ctx ends, and gives memory and events back.
// After an error it may be called again, for what is left. It may block in the driver.
func (m *Memory) Close(ctx context.Context) error {
	var errs []error
	for _, t := range m.takeAll() {
		if err := m.free(ctx, t); err != nil {
			errs = append(errs, err)
			m.Release(t)
		}
	}
	return errors.Join(errs...)
}

func (m *Memory) takeAll() []*Table {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := slices.Concat(m.idle, m.lost)
	for _, line := range m.lines {
		all = append(all, line...)
	}
	m.idle, m.lost = nil, nil
	clear(m.lines)
	return all
}

// free gives event and memory of t back to the driver, after the device is done with them.
func (m *Memory) free(ctx context.Context, t *Table) error {
	if t.event != 0 {
		if err := deadline.Poll(ctx, func() (bool, error) { return m.drv.EventQuery(t.event) }); err != nil {
			return err
		}
		if err := m.drv.EventDestroy(t.event); err != nil {
			return err
		}
		t.event = 0
	}
	return m.drv.HostFree(t.mem)
}
