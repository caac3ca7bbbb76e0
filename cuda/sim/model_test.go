package sim

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// model is what a program may rely on: live blocks never overlap, and the
// books are exact.
type model struct {
	*program
	streams []driver.Stream
	events  []driver.Event
	pools   []driver.Pool
	blocks  map[uint64]uint64 // live: address to size
	owner   map[uint64]driver.Stream
	used    map[driver.Pool]uint64
	from    map[uint64]driver.Pool
	bytes   uint64
}

const modelCapacity = 32 << 20

func newModel(t *testing.T, s Schedule) (*model, *Device) {
	d, err := Open(Config{Bytes: modelCapacity, Schedule: s})
	must(t, err)
	m := &model{program: newProgram(t, d), pools: []driver.Pool{0}, blocks: map[uint64]uint64{},
		owner: map[uint64]driver.Stream{}, used: map[driver.Pool]uint64{}, from: map[uint64]driver.Pool{}}
	for range 3 {
		m.streams = append(m.streams, m.stream())
		m.events = append(m.events, m.event())
	}
	pool, err := d.PoolCreate(driver.PoolConfig{ReleaseThreshold: 4 << 20, MaxBytes: 24 << 20})
	must(t, err)
	m.pools = append(m.pools, pool)
	return m, d
}

func (m *model) allocate(r *rapid.T) {
	pool := rapid.SampledFrom(m.pools).Draw(r, "pool")
	s := rapid.SampledFrom(m.streams).Draw(r, "stream")
	size := rapid.OneOf(rapid.Uint64Range(1, 2000), rapid.Uint64Range(1, 6<<20)).Draw(r, "size")
	ptr, err := m.d.MemAllocAsync(size, pool, s)
	if err != nil {
		wantCode(m, err, driver.OutOfMemory)
		return
	}
	for other, n := range m.blocks {
		if ptr < other+n && other < ptr+size {
			r.Fatalf("%#x+%d overlaps the live block %#x+%d", ptr, size, other, n)
		}
	}
	if ptr%unit != 0 {
		r.Fatalf("%#x is not aligned", ptr)
	}
	m.blocks[ptr], m.owner[ptr], m.from[ptr] = size, s, pool
	m.used[pool] += size
	m.bytes += size
	m.launch("write", ptr, size, s)
}

func (m *model) release(r *rapid.T) {
	if len(m.blocks) == 0 {
		r.Skip("nothing is allocated")
	}
	ptr := rapid.SampledFrom(slices.Sorted(maps.Keys(m.blocks))).Draw(r, "block")
	if rapid.IntRange(0, 9).Draw(r, "way") == 0 {
		must(m, m.d.MemFree(ptr))
	} else {
		s := rapid.SampledFrom(m.streams).Draw(r, "stream")
		m.order(m.owner[ptr], s)
		m.free(ptr, s)
	}
	m.used[m.from[ptr]] -= m.blocks[ptr]
	m.bytes -= m.blocks[ptr]
	delete(m.blocks, ptr)
}

func (m *model) record(r *rapid.T) {
	must(m, m.d.EventRecord(rapid.SampledFrom(m.events).Draw(r, "event"), rapid.SampledFrom(m.streams).Draw(r, "stream")))
}

func (m *model) wait(r *rapid.T) {
	must(m, m.d.StreamWait(rapid.SampledFrom(m.streams).Draw(r, "stream"), rapid.SampledFrom(m.events).Draw(r, "event")))
}

func (m *model) synchronize(r *rapid.T) {
	must(m, m.d.StreamSynchronize(rapid.SampledFrom(m.streams).Draw(r, "stream")))
}

func (m *model) trim(r *rapid.T) {
	must(m, m.d.PoolTrim(rapid.SampledFrom(m.pools).Draw(r, "pool"), rapid.Uint64Range(0, 8<<20).Draw(r, "keep")))
}

// check compares the device's books with the model's, and its heap with
// itself.
func (m *model) check(r *rapid.T) {
	b := m.d.Books()
	if b.LiveBlocks != uint64(len(m.blocks)) || b.LiveBytes != m.bytes {
		r.Fatalf("the books say %d blocks, %d bytes; the model %d, %d", b.LiveBlocks, b.LiveBytes, len(m.blocks), m.bytes)
	}
	if b.Reserved > modelCapacity {
		r.Fatalf("%d bytes are reserved of %d", b.Reserved, modelCapacity)
	}
	for _, p := range m.pools {
		stats, err := m.d.PoolStats(p)
		must(m, err)
		if stats.Used != m.used[p] || stats.Used > stats.Reserved {
			r.Fatalf("pool %d: %+v, the model has %d in use", p, stats, m.used[p])
		}
	}
	checkHeap(r, m.d)
	if f := m.d.Findings(); len(f) != 0 {
		r.Fatalf("findings in a correct program: %v", f)
	}
}

// checkHeap requires that nodes tile what is reserved and know each other.
func checkHeap(r *rapid.T, d *Device) {
	d.memory.Lock()
	defer d.memory.Unlock()
	total := uint64(0)
	for addr, n := range d.memory.nodes {
		total += n.size
		if n.addr != addr || d.memory.nodeAt(n.end()-1) != n || !d.memory.arena.isMapped(addr, n.size) {
			r.Fatalf("node %#x+%d is out of place", n.addr, n.size)
		}
		if n.next != nil && (n.next.prev != n || n.next.addr != n.end() || n.next.pool != n.pool) {
			r.Fatalf("node %#x+%d does not touch its neighbour %#x", n.addr, n.size, n.next.addr)
		}
		if n.free != (n.blk == nil) {
			r.Fatalf("node %#x: free %v, block %v", n.addr, n.free, n.blk)
		}
	}
	if total != d.memory.reserved {
		r.Fatalf("nodes have %d bytes, %d are reserved", total, d.memory.reserved)
	}
}

func TestAllocatorAgainstModel(t *testing.T) {
	for _, s := range schedules[:2] {
		t.Run(s.String(), func(t *testing.T) {
			rapid.Check(t, func(r *rapid.T) {
				m, d := newModel(t, s)
				defer func() { must(t, d.Close()) }()
				r.Repeat(map[string]func(*rapid.T){
					"": m.check, "alloc": m.allocate, "alloc again": m.allocate, "free": m.release,
					"record": m.record, "wait": m.wait, "synchronize": m.synchronize, "trim": m.trim,
				})
			})
		})
	}
}
