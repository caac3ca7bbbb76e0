package program

// Of a fuzzer's bytes each operation takes opBytes: kind, stream, and two that
// say which of the live blocks it means, by their rank: what it writes and what
// it reads, or one. Any bytes are a program: what makes no sense where it
// stands (a use of a block when none is live) is left out.
const opBytes = 4

// Decode makes a program of bytes, within b's streams and blocks and of at
// most b.Ops operations.
func Decode(data []byte, b Bounds) Program {
	var p Program
	var s state
	for len(data) >= opBytes && len(p) < b.Ops {
		if o, ok := s.decode(data[:opBytes], b); ok {
			p = append(p, o)
			s = s.after(o)
		}
		data = data[opBytes:]
	}
	return p
}

func (s state) decode(data []byte, b Bounds) (Op, bool) {
	kind := Kind(data[0] % uint8(kinds))
	o := Op{Kind: kind, Stream: data[1] % uint8(b.Streams)}
	if kind != Alloc && !b.has(kind) {
		return o, false
	}
	switch kind {
	case Alloc:
		o.Block = s.made
		return o, int(s.made) < b.Blocks
	case Free, Record:
		if s.live == 0 {
			return o, false
		}
		o.Block = s.liveBlock(data[2])
	case Launch, Abort:
		o.Writes = s.live.ranked(data[2])
		o.Reads = s.live.ranked(data[3] &^ data[2])
		return o, o.Reads|o.Writes != 0
	}
	if kind == Free {
		o.Stream = 0
	}
	return o, true
}

// liveBlock is the n-th live block, counted round and round.
func (s state) liveBlock(n byte) uint8 {
	left := int(n) % s.live.Len()
	for b := range s.live.All() {
		if left == 0 {
			return b
		}
		left--
	}
	return 0 // not reached: some block is live
}

// ranked is the members of s whose rank is a bit of which.
func (s Set) ranked(which byte) (picked Set) {
	rank := 0
	for b := range s.All() {
		if rank < 8 && which>>rank&1 != 0 {
			picked |= 1 << b
		}
		rank++
	}
	return picked
}

// ranks is the opposite of ranked.
func (s Set) ranks(picked Set) (which byte) {
	rank := 0
	for b := range s.All() {
		if picked.Has(b) {
			which |= 1 << rank
		}
		rank++
	}
	return which
}

func (s state) after(o Op) state {
	switch o.Kind {
	case Alloc:
		s.live |= 1 << s.made
		s.made++
	case Free:
		s = s.without(o.Block)
	}
	s.used = max(s.used, o.Stream+1)
	return s
}

// Encode is the bytes that Decode makes p of. Launches over other than the
// first eight live blocks have no such form.
func (p Program) Encode() []byte {
	var data []byte
	var s state
	for _, o := range p {
		item := [opBytes]byte{byte(o.Kind), o.Stream, s.live.ranks(o.Writes), s.live.ranks(o.Reads)}
		if o.Kind == Free || o.Kind == Record {
			item[2] = byte((s.live & (1<<o.Block - 1)).Len())
		}
		data = append(data, item[:]...)
		s = s.after(o)
	}
	return data
}
