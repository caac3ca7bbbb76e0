package budget

// credit is the general ledger's account as one stream ledger has it: in front of the
// word that all streams share, bytes that were released on this stream and stay in
// used. The lock of the stream ledger guards it; [ledger] has the protocol.
type credit struct {
	ledger *ledger
	bytes  uint64
}

var _ account = (*credit)(nil)

// creditShare is the part of the room below the limit that a stream ledger may keep: so
// a block is granted from credit while there is room for so many of its size, and the
// nearer the limit the less there is to recall.
const creditShare = 16

// take takes of the credit first what cannot be lent.
func (c *credit) take(n, lendable uint64) (uint64, bool) {
	lent := min(n, lendable)
	if c.bytes > 0 && n-lent <= c.bytes {
		c.bytes -= n - lent
		return lent, true
	}
	lent, ok := c.ledger.take(n-c.bytes, lendable)
	if !ok {
		return lent + c.bytes, false
	}
	c.bytes = 0
	return lent, true
}

// give keeps n bytes as credit if it may.
func (c *credit) give(n uint64) {
	if n > 0 && c.ledger.leaves(c.bytes+n) {
		c.bytes += n
		return
	}
	c.ledger.give(n)
}

// recall gives the credit back to the general ledger.
func (c *credit) recall() {
	c.ledger.give(c.bytes)
	c.bytes = 0
}

// leaves reports whether a stream ledger may have so many bytes of credit. It reads
// one cache line, which is not written while all streams live on their credit.
func (l *ledger) leaves(credit uint64) bool {
	return l.recalls.Load() == 0 && credit <= less(l.limit.Load(), l.used.Load())/creditShare
}

// recallCredit calls try while no stream ledger has credit or gets any.
func (t *streamLedgers) recallCredit(try func()) {
	t.ledger.recalls.Add(1)
	defer t.ledger.recalls.Add(-1)
	t.recall()
	try()
}

// recall takes the credit of all stream ledgers.
func (t *streamLedgers) recall() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for l := range t.each {
		l.mu.Lock()
		l.credit.recall()
		l.mu.Unlock()
	}
}

// totals is how many bytes are lent, and how many are credit.
func (t *streamLedgers) totals() (lent, credit uint64) {
	for _, l := range t.list() {
		l.mu.Lock()
		lent, credit = lent+l.lent(), credit+l.credit.bytes
		l.mu.Unlock()
	}
	return lent, credit
}
