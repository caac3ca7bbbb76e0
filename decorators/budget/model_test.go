package budget

import "github.com/fencepost-gpu/fencepost/core"

// model says what the ledger should be, in sums over lists of blocks and
// claims that are taken anew at each step; only what is lent is a state of
// its own. It knows nothing of locks, stream ledgers or notices.
type model struct {
	limit  uint64
	blocks []*modelBlock
	claims []*modelClaim
	loans  map[modelPurse]uint64
}

type modelPurse struct {
	stream core.StreamID
	claim  core.ClaimID
}

type modelBlock struct {
	id             core.BlockID
	tag            core.Tag
	claim          core.ClaimID
	drawn, padding uint64
	freed, held    bool
}

type modelClaim struct {
	id    core.ClaimID
	bytes uint64
}

// from is how many of b's bytes came from claim.
func (b *modelBlock) from(claim core.ClaimID) uint64 {
	switch {
	case b.claim == claim:
		return b.drawn
	case claim == 0:
		return b.padding
	}
	return 0
}

func (m *model) lent() (lent uint64) {
	for _, n := range m.loans {
		lent += n
	}
	return lent
}

func (m *model) charged() (charged uint64) {
	for _, b := range m.blocks {
		charged += b.drawn + b.padding
	}
	return charged + m.unspent()
}

func (m *model) unspent() (unspent uint64) {
	for _, c := range m.claims {
		unspent += m.unspentOf(c)
	}
	return unspent
}

func (m *model) unspentOf(c *modelClaim) uint64 {
	unspent := c.bytes
	for _, b := range m.blocks {
		unspent -= b.from(c.id) * boolean(b.claim == c.id)
	}
	for p, n := range m.loans {
		unspent += n * boolean(p.claim == c.id)
	}
	return unspent
}

func boolean(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

func (m *model) lendable(p modelPurse) uint64 {
	var pending, held uint64
	for _, b := range m.blocks {
		if b.freed && b.id.AllocStream == p.stream {
			pending += b.from(p.claim)
			held += (b.drawn + b.padding) * boolean(b.held)
		}
	}
	return less(less(pending, m.loans[p]), held)
}

// grants reports whether n bytes fit, and how many of them are lent.
func (m *model) grants(p modelPurse, n uint64) (lent uint64, fits bool) {
	short := less(m.charged()-m.lent()+n, m.limit)
	if p.claim != 0 {
		short = less(n, m.unspentOf(m.claim(p.claim)))
	}
	lendable := m.lendable(p)
	return min(lendable, n), short <= lendable
}

func (m *model) claim(id core.ClaimID) *modelClaim {
	for _, c := range m.claims {
		if c.id == id {
			return c
		}
	}
	return nil
}

// admits reports whether req fits, and takes its loans if it does.
func (m *model) admits(req core.Request) bool {
	drawn, fits := m.grants(modelPurse{req.Stream, req.Claim}, req.Requested)
	padding, paddingFits := uint64(0), true
	if req.Bytes > req.Requested {
		padding, paddingFits = m.grants(modelPurse{req.Stream, 0}, req.Bytes-req.Requested)
	}
	if !fits || !paddingFits {
		return false
	}
	m.loans[modelPurse{req.Stream, req.Claim}] += drawn
	m.loans[modelPurse{req.Stream, 0}] += padding
	return true
}

// released takes the blocks of order, which were freed on stream, off the
// lists.
func (m *model) released(stream core.StreamID, order []core.Generation) {
	for _, g := range order {
		for i, b := range m.blocks {
			if b.id.Generation != g {
				continue
			}
			m.repay(modelPurse{stream, b.claim}, b.drawn)
			m.repay(modelPurse{stream, 0}, b.padding)
			m.blocks = append(m.blocks[:i], m.blocks[i+1:]...)
			break
		}
	}
}

func (m *model) repay(p modelPurse, n uint64) { m.loans[p] = less(m.loans[p], n) }
