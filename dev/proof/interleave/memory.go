package interleave

// Memory is told, in a build over an overlay, of what an allocator of the scheduled code's own does
// under the lock of a stream. No other step there would show it.
type Memory interface {
	// Took says that a block has got its memory.
	Took(stream, ptr, bytes uint64)
	// Gave says that a block's memory is about to be free.
	Gave(stream, ptr uint64)
}

// memory is told, unless it is nil.
var memory Memory

// Watch makes m be told from now on.
func Watch(m Memory) { memory = m }

// Took tells the memory that is watched.
func Took(stream, ptr, bytes uint64) {
	if memory != nil {
		memory.Took(stream, ptr, bytes)
	}
}

// Gave tells the memory that is watched.
func Gave(stream, ptr uint64) {
	if memory != nil {
		memory.Gave(stream, ptr)
	}
}
