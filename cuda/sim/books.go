package sim

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
