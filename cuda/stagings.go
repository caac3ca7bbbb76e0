package cuda

import (
	"slices"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// stagings are the memories that no batch is being written to: idle ones, and
// those that the device may still read, in line behind the batches of their
// stream. A stream's batches end in order, so the head of a line speaks for
// all behind it: a device that is a thousand batches behind is asked about a
// few and not about each, and a stalled stream hides nothing of the others.
type stagings struct {
	mu    sync.Mutex
	idle  []*staging
	lines map[core.StreamID][]*staging
	// gone are lost ones; see staging.
	gone []*staging
}

// looks is how many memories of a line are asked about at a time, and how many
// lines of other streams if one's own has none to give.
const looks = 4

// take returns idle memory of at least size bytes, nil if there is none.
func (m *stagings) take(drv driver.Driver, stream core.StreamID, size int) *staging {
	m.mu.Lock()
	defer m.mu.Unlock()
	if st := m.pick(size); st != nil {
		return st
	}
	m.collect(drv, stream)
	if st := m.pick(size); st != nil {
		return st
	}
	queried := 0
	for other := range m.lines {
		if queried == looks {
			break
		}
		if other != stream {
			m.collect(drv, other)
			queried++
		}
	}
	return m.pick(size)
}

// pick takes the memory used last of what is idle and large enough; mu must
// be held.
func (m *stagings) pick(size int) *staging {
	for i, st := range slices.Backward(m.idle) {
		if len(st.mem.Bytes) >= size {
			m.idle = slices.Delete(m.idle, i, i+1)
			return st
		}
	}
	return nil
}

// collect moves some of what the device is done with from the head of a line
// to the idle ones; mu must be held. What cannot be asked about stays where it is.
func (m *stagings) collect(drv driver.Driver, stream core.StreamID) {
	line := m.lines[stream]
	for range min(looks, len(line)) {
		if done, err := drv.EventQuery(line[0].event); !done || err != nil {
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

// park keeps memory until its event is completed. Memory that the
// device may use for nobody knows how long waits for the end, apart.
func (m *stagings) park(st *staging) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if st.lost {
		m.gone = append(m.gone, st)
		return
	}
	if m.lines == nil {
		m.lines = map[core.StreamID][]*staging{}
	}
	m.lines[st.stream] = append(m.lines[st.stream], st)
}

// rest takes memory back that the device is known to be done with.
func (m *stagings) rest(st *staging) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.idle = append(m.idle, st)
}

// takeAll returns all of them, for a caller that closes them.
func (m *stagings) takeAll() []*staging {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := slices.Concat(m.idle, m.gone)
	for _, line := range m.lines {
		all = append(all, line...)
	}
	m.idle, m.gone, m.lines = nil, nil, nil
	return all
}
