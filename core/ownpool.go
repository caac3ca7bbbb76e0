package core

import "time"

// OwnPoolStats is what a pool of the runtime's own says of itself (cuda.PoolResource),
// beyond what every pool does.
type OwnPoolStats struct {
	// Present is set if the backend is such a pool: a zero below is then one that was counted.
	Present bool
	// Limit is how many bytes the pool may hold, zero for no limit.
	Limit uint64
	// Fragmented is the cached bytes that are in no wholly free page: they lie beside
	// blocks, so that only requests on their own stream can have them.
	Fragmented uint64
	// Behind is the bytes of wholly free pages that other streams and other addresses cannot
	// have yet without a wait: they lie behind work that the device is not known to have done.
	Behind uint64
	// Takeovers are of free pages of another stream that the asking one came after
	// already, Steals of pages for which it had to wait on the device. Their bytes
	// are those of the pages.
	Takeovers, Steals PoolMoves
	// Remaps are of free pages to other addresses, in a row, and Growths of more memory
	// from the device; an allocation that needed both counts in both. Trims are of free
	// pages back to the device.
	Remaps, Growths, Trims PoolMoves
}

// PoolMoves counts the moves of one kind since the pool was made.
type PoolMoves struct {
	// Count is how many there were, and Bytes what they moved.
	Count, Bytes uint64
	// Time is what they took on the host, in calls of the driver for the most part.
	// Takeovers call no driver and are not timed.
	Time time.Duration
}

// Note counts a move.
func (m *PoolMoves) Note(bytes uint64, took time.Duration) {
	m.Count++
	m.Bytes += bytes
	m.Time += took
}
