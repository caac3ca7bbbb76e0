package sim

// pages is how a system gives address space out and backs parts of it. All
// calls take whole granules, or the index behind them.
//
// What an arena relies on: pages that were committed and not touched yet take
// no memory of the machine, or the machine's promise of it at most; and what
// was given back reads as zero when it is committed again.
type pages struct {
	// reserve takes address space. Nothing of it may be touched yet.
	reserve func(bytes uint64) ([]byte, error)
	// commit lets the program at a part, which reads as zero if it was not
	// committed before. It fails if the machine can promise no more.
	commit func(part []byte) error
	// giveBack returns a part's pages to the machine.
	giveBack func(part []byte)
	// release gives the address space back.
	release func(region []byte) error
	// revokes says that a part that was given back must not be touched: the
	// access faults. Elsewhere it reads zeros, and a write is lost.
	revokes bool
}

// commitNothing is the commit of systems that map lazily by themselves.
func commitNothing([]byte) error { return nil }
