package overlap

import (
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/dev/proof/interleave"
)

// Took puts the allocation of a block from the runtime's own pool on its stream: a step,
// like what a driver would be asked for.
func (g *gate) Took(stream, ptr, bytes uint64) {
	g.onStream(uint8(stream), interleave.Access{Object: &g.allocator, Write: true})
	g.own().allocated = int32(g.History.Len())
	g.Locate(ptr, bytes)
	if err := g.Allocated(uint8(stream)); err != nil {
		g.blame("block %d: %w", g.Block, err)
		return
	}
	g.reused.Note(g.History)
}

// Gave puts the free of a block on the stream.
func (g *gate) Gave(stream, ptr uint64) {
	g.onStream(uint8(stream), interleave.Access{Object: &g.allocator, Write: true})
	block, ok := g.At(ptr)
	if !ok {
		g.blame("memory at %#x was freed, and no block has it", ptr)
		return
	}
	if err := g.FreedOn(uint8(stream), block, false); err != nil {
		g.blame("block %d: %w", block, err)
	}
}

// onPages is a step that maps memory, or takes it away, which the device may have used.
func (g *gate) onPages() {
	interleave.Do(interleave.Access{Object: &g.allocator, Write: true}, interleave.Access{Object: &g.world})
	g.speak()
}

func (g *gate) MemCreate(bytes uint64) (driver.MemHandle, error) {
	g.onPages()
	return g.Device.MemCreate(bytes)
}

func (g *gate) MemRelease(h driver.MemHandle) error {
	g.onPages()
	return g.Device.MemRelease(h)
}

func (g *gate) MemMap(ptr, bytes uint64, h driver.MemHandle) error {
	g.onPages()
	return g.Device.MemMap(ptr, bytes, h)
}

func (g *gate) MemAccess(ptr, bytes uint64) error {
	g.onPages()
	return g.Device.MemAccess(ptr, bytes)
}

func (g *gate) MemUnmap(ptr, bytes uint64) error {
	g.onPages()
	return g.Device.MemUnmap(ptr, bytes)
}
