package logging

import (
	"slices"
	"sync/atomic"
)

// parcelSize is the number of slots of a parcel: how many records are put before the
// stripe asks for another one, and how many a snapshot copies at a time.
const parcelSize = 16

// parcel is some slots, and what its owner's lock guards.
type parcel struct {
	slots []slot
	next  *parcel // the owner's next newer one
	full  bool    // every slot is to be read, not only those before the owner's at
	owner atomic.Pointer[stripe]
}

// advance begins another parcel; p.mu must be held.
func (g *Ring) advance(p *stripe) {
	c := g.grant(p)
	if c == nil {
		c, p.oldest = p.oldest, p.oldest.next
	}
	if p.newest != nil {
		p.newest.full = true
	}
	if p.oldest == nil {
		p.oldest = c
	} else {
		p.newest.next = c
	}
	p.newest, c.next = c, nil
	p.room, p.at = c.slots, 0
}

// grant makes a parcel p's. It returns nil if p has its share, or another stripe is
// being granted one; p.mu must be held.
func (g *Ring) grant(p *stripe) *parcel {
	switch {
	case p.newest == nil:
		g.sharing.Lock()
		g.active++
	case !g.sharing.TryLock():
		return nil
	}
	defer g.sharing.Unlock()
	var c *parcel
	switch {
	case g.given < len(g.parcels):
		c = &g.parcels[g.given]
		c.owner.Store(p)
		g.given++
	case p.count < len(g.parcels)/g.active:
		c = g.moveTo(p)
	default:
		return nil
	}
	p.count++
	return c
}

// moveTo gives p the oldest parcel of the stripe that has most: more than its share,
// so not its last. sharing must be held.
func (g *Ring) moveTo(p *stripe) *parcel {
	most := p
	for i := range g.stripes {
		if g.stripes[i].count > most.count {
			most = &g.stripes[i]
		}
	}
	most.mu.Lock()
	defer most.mu.Unlock()
	c := most.oldest
	most.oldest = c.next
	most.count--
	c.owner.Store(p)
	c.full, most.newest.full = false, false // their old records are forgotten
	return c
}

// appendTo copies the records of a parcel.
func (c *parcel) appendTo(records []Record) []Record {
	records = slices.Grow(records, len(c.slots)) // not under the lock
	p := c.lockOwner()
	if p == nil {
		return records
	}
	defer p.mu.Unlock()
	written := len(c.slots)
	if !c.full {
		written = p.at // it is the newest then
	}
	for i := range c.slots[:written] {
		records = append(records, c.slots[i].read())
	}
	return records
}

// lockOwner locks the stripe that has the parcel, and returns nil if none has.
func (c *parcel) lockOwner() *stripe {
	for {
		p := c.owner.Load()
		if p == nil {
			return nil
		}
		p.mu.Lock()
		if c.owner.Load() == p {
			return p
		}
		p.mu.Unlock()
	}
}
