package program

// Count is how many programs of 1 to b.Ops operations Each makes. It makes
// none of them: it adds up how many operations may follow, by how many streams
// were named, blocks made and blocks alive.
func (b Bounds) Count() uint64 {
	c := counter{Bounds: b, known: map[situation]uint64{}}
	return c.programs(situation{left: b.Ops}) - 1 // the empty one
}

type situation struct{ left, used, made, live int }

type counter struct {
	Bounds
	known map[situation]uint64
}

// programs counts the ways to go on, stopping at once among them.
func (c *counter) programs(s situation) uint64 {
	if s.left == 0 {
		return 1
	}
	if n, ok := c.known[s]; ok {
		return n
	}
	old, fresh := s, s
	old.left--
	fresh.left, fresh.used = s.left-1, s.used+1
	total := uint64(1)
	named := func(change func(*situation)) uint64 { // a stream that was named, or the next
		was, is := old, fresh
		change(&was)
		change(&is)
		n := uint64(s.used) * c.programs(was)
		if s.used < c.Streams {
			n += c.programs(is)
		}
		return n
	}
	if s.made < c.Blocks {
		total += uint64(len(c.sizes())) * named(func(t *situation) { t.made++; t.live++ })
	}
	if uses := c.uses(s.live); uses > 0 {
		total += uses * named(func(*situation) {})
	}
	if c.has(Free) && s.live > 0 {
		freed := old
		freed.live--
		total += uint64(s.live) * c.programs(freed)
	}
	for _, kind := range []Kind{Sync, Reap, GiveUp} {
		if c.has(kind) {
			total += uint64(s.used) * c.programs(old)
		}
	}
	c.known[s] = total
	return total
}

// uses is how many ways there are to use some of the live blocks.
func (c *counter) uses(live int) uint64 {
	ways := uint64(1)
	for range live {
		ways *= 3
	}
	ways-- // not nothing
	if c.Single {
		ways = uint64(live)
	}
	n := uint64(0)
	for _, kind := range launches {
		if c.has(kind) {
			n += ways
		}
	}
	for _, kind := range []Kind{Record, FaultyRecord} {
		if c.has(kind) {
			n += uint64(live)
		}
	}
	return n
}
