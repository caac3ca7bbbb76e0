package driver

// Oracle is what a device offers that judges accesses by the blocks that they lie in, as
// the simulated one does. Of blocks that the driver allocates it knows. Who cuts blocks out
// of mapped memory tells it of them, by calls that enqueue nothing, do not block and cannot
// fail. They are safe for concurrent use.
type Oracle interface {
	// BlockBegins tells that the bytes at ptr, which are mapped, are a block from now on, in
	// the order of s: what is enqueued later may use it.
	BlockBegins(ptr, bytes uint64, s Stream)
	// BlockEnds tells that the life of the block at ptr ends here in the order of s: what
	// was enqueued before is the last that may use it.
	BlockEnds(ptr uint64, s Stream)
}

// OracleOf returns the oracle of the device beneath every [Wrapper] of d, nil if it has none.
// It makes no device call.
func OracleOf(d Driver) Oracle {
	o, _ := Unwrap(d).(Oracle)
	return o
}
