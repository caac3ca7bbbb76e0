package sim

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// Device is a simulated GPU. All methods are safe for concurrent use, while Close runs and after it
// too. After Close a method whose last result is an error returns one, but for Close itself and
// WatchFaults. The other methods read the device's books, or do nothing.
//
// Locks are taken in this order: device (of two, the one that was opened first),
// heap, guests, strays, stream, block, findings.
type Device struct {
	config Config
	memory *heap // of the device
	host   *heap // page-locked memory of the machine
	direct *pool // what MemAlloc takes from
	pinned *pool // what HostAlloc takes from
	// mapped is the range of addresses for MemReserve; nil before the first.
	mapped atomic.Pointer[heap]
	// indirect counts the launches that are queued of kernels that find addresses
	// in memory.
	indirect atomic.Int64
	calls    []counter // by the index of the method
	found    findings
	strays   strays
	faults   faults

	// lost is the error that took the context, nil before. dead is
	// closed when it is set and at Close: nothing waits any longer then.
	lost    atomic.Pointer[loss]
	dead    chan struct{}
	die     sync.Once
	closed  atomic.Bool
	dumped  sync.Once
	watch   faultWatch
	workers sync.WaitGroup

	// number orders the devices of the process; fabric is those that this
	// one works with, nil before it does. guests is read-locked by copies
	// that other devices make from this one's memory.
	number uint64
	fabric atomic.Pointer[fabric]
	guests sync.RWMutex
	inbox  inbox

	mu        sync.Mutex
	streams   table[driver.Stream, stream]
	events    table[driver.Event, event]
	pools     table[driver.Pool, pool]
	modules   table[driver.Module, module]
	functions table[driver.Function, Kernel]
	graphs    table[driver.Graph, graph]
	created   table[driver.MemHandle, physical]
	images    map[string]*module
	slots     slots
	pushed    uint64 // operations of all streams
	hostClock vec
	hostEpoch uint64        // changes when hostClock does
	ghosts    map[place]int // the slots of the foreign streams that were heard of
	chooser   *rand.Rand
	stalled   *sync.Cond // seeded: a synchronisation that found nothing to run
	opened    time.Time
	hostTime  time.Duration // seeded: the host's
}

var _ driver.Driver = (*Device)(nil)

// Open makes a device. It reserves address space and no memory. The device
// must be closed.
func Open(c Config) (*Device, error) {
	c, err := c.normalize()
	if err != nil {
		return nil, err
	}
	gpu, err := newArena(deviceBase+uint64(c.Ordinal)*deviceSpan, c.Bytes, unit)
	if err != nil {
		return nil, err
	}
	pinned, err := newArena(hostBase, c.Bytes, unit)
	if err != nil {
		_ = gpu.close()
		return nil, err
	}
	d := &Device{
		config: c, memory: newHeap(gpu, c.Bytes), host: newHeap(pinned, c.Bytes),
		number: lastDevice.Add(1), dead: make(chan struct{}), images: make(map[string]*module), ghosts: make(map[place]int),
		calls: make([]counter, len(methods)), opened: time.Now(),
	}
	d.streams.what, d.events.what, d.pools.what, d.created.what = "stream", "event", "pool", "memory"
	d.modules.what, d.functions.what, d.graphs.what = "module", "function", "graph"
	d.stalled = sync.NewCond(&d.mu)
	d.memory.hostKnows = func(slot int, seq uint64) bool { return d.hostClock.at(slot) >= seq }
	if c.Schedule.seeded {
		d.chooser = rand.New(rand.NewPCG(c.Schedule.seed, 0x5eed))
	}
	d.direct = d.memory.newPool(driver.PoolConfig{})
	d.pinned = d.host.newPool(driver.PoolConfig{})
	d.streams.again = c.ReuseStreamHandles
	// The zero handles are the default pool and the legacy default stream.
	d.pools.putZero(d.memory.newPool(driver.PoolConfig{}))
	d.streams.putZero(d.newStream())
	err = d.RegisterModule(driver.GuardImage, guardKernels()...)
	return d, err
}

// Ordinal is the device's number.
func (d *Device) Ordinal() int { return d.config.Ordinal }

// Properties describes the device: the configured name, identity and capacity,
// and the compute capability of no real device.
func (d *Device) Properties() (driver.Properties, error) {
	if err := d.enter(mProperties); err != nil {
		return driver.Properties{}, err
	}
	return driver.Properties{Name: d.config.Name, UUID: d.config.UUID, PCIBusID: busID(d.config.UUID),
		Multiprocessors: 1, TotalBytes: d.config.Bytes, MemoryPools: true, MapGranularity: Granule}, nil
}

// MemInfo returns the bytes that neither a pool nor a handle of MemCreate
// holds, and the capacity.
func (d *Device) MemInfo() (free, total uint64, err error) {
	if err := d.enter(mMemInfo); err != nil {
		return 0, 0, err
	}
	d.memory.Lock()
	defer d.memory.Unlock()
	return d.config.Bytes - d.memory.reserved, d.config.Bytes, nil
}

// Close waits for the operations that are running, discards those that are
// not, ends all goroutines and unmaps the memory, that of HostAlloc too: its
// slices must not be touched afterwards. A second Close does nothing.
func (d *Device) Close() error {
	d.calls[mClose.index].n.Add(1)
	d.mu.Lock()
	if d.closed.Swap(true) {
		d.mu.Unlock()
		return nil
	}
	d.mu.Unlock()
	d.kill()
	d.workers.Wait()
	d.fileStrays(d.strays.take(func(stray) bool { return true }))
	d.mu.Lock()
	defer d.mu.Unlock()
	heaps := d.heaps()
	for _, h := range heaps {
		h.Lock()
	}
	d.guests.Lock()
	defer d.guests.Unlock()
	var errs []error
	for _, h := range heaps {
		errs = append(errs, h.arena.close())
		h.Unlock()
	}
	return errors.Join(errs...)
}

// heaps are all that have memory, in the order of their locks.
func (d *Device) heaps() []*heap {
	all := []*heap{d.memory, d.host}
	if h := d.mapped.Load(); h != nil {
		all = append(all, h)
	}
	return all
}

// kill wakes everything that waits, once the context is lost or closed.
func (d *Device) kill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.killLocked()
}

func (d *Device) killLocked() {
	d.die.Do(func() { close(d.dead) })
	d.stalled.Broadcast()
	d.stir()
	for _, s := range d.slots.owners {
		s.wake()
	}
}

// isDead reports whether work is to be discarded.
func (d *Device) isDead() bool { return d.lost.Load() != nil || d.closed.Load() }

// state is the error that every call of m returns from now on, or nil.
func (d *Device) state(m *method) error {
	if d.closed.Load() {
		return withDetail(driver.NewError(m.entry, driver.Deinitialized), "the simulated device was closed")
	}
	if l := d.lost.Load(); l != nil {
		return l.err(m)
	}
	return nil
}

func withDetail(err *core.DriverError, detail string) error {
	err.Detail = detail
	return err
}

func fault(m *method, code int, detail string) error {
	return withDetail(driver.NewError(m.entry, code), detail)
}

// Books are the device's own accounts, for tests that prove that nothing
// leaks. Sizes are bytes as asked for, but Reserved.
type Books struct {
	// LiveBlocks and LiveBytes are device memory allocated and not freed,
	// whatever way it was allocated.
	LiveBlocks, LiveBytes uint64
	// HostBlocks and HostBytes are the same of HostAlloc.
	HostBlocks, HostBytes uint64
	// PendingFrees and PendingBytes are frees that are queued and that the
	// device has not passed.
	PendingFrees, PendingBytes uint64
	// Reserved is what all pools and handles of MemCreate hold of the device's
	// memory.
	Reserved uint64
	// Handles are those of MemCreate that were not released, Mappings what is
	// mapped, with MappedBytes, and Reservations the ranges of addresses
	// reserved, mapped or not.
	Handles, Mappings, Reservations int
	MappedBytes                     uint64
	// QueuedOps are operations that wait or run.
	QueuedOps uint64
	// Streams, Events, Pools, Modules and Graphs exist; stream 0 and the
	// default pool are not counted.
	Streams, Events, Pools, Modules, Graphs int
}

// Books reads the accounts. In a seeded schedule nothing runs for it.
func (d *Device) Books() Books {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := Books{Streams: d.streams.live, Events: d.events.live, Pools: d.pools.live, Modules: d.modules.live, Graphs: d.graphs.live}
	for _, s := range d.slots.owners {
		s.count(&b)
	}
	b.LiveBlocks, b.LiveBytes = d.memory.countLive()
	b.HostBlocks, b.HostBytes = d.host.countLive()
	b.Handles = d.created.live
	if h := d.mapped.Load(); h != nil {
		h.countMapped(&b)
	}
	d.memory.Lock()
	defer d.memory.Unlock()
	b.Reserved = d.memory.reserved
	return b
}

// count adds what is queued on s.
func (s *stream) count(b *Books) {
	s.pruneFrees()
	for _, f := range s.frees.waiting() {
		b.PendingFrees++
		b.PendingBytes += f.bytes
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b.QueuedOps += uint64(len(s.queue.waiting()))
}

func (h *heap) countMapped(b *Books) {
	h.Lock()
	defer h.Unlock()
	b.Reservations, b.Mappings = len(h.addresses.list), len(h.nodes)
	for _, n := range h.nodes {
		b.MappedBytes += n.size
	}
}

func (h *heap) countLive() (blocks, bytes uint64) {
	h.Lock()
	defer h.Unlock()
	for _, n := range h.nodes {
		if !n.free {
			blocks++
			bytes += n.blk.bytes
		}
	}
	return blocks, bytes
}
