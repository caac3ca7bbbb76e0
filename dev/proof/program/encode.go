package program

import (
	"encoding/binary"
	"slices"
)

// Of a fuzzer's bytes each operation takes opBytes: kind, stream, and two words
// that say which of the live blocks it means, by their rank: what it writes and
// what it reads, or one. Any bytes are a program: what makes no sense where it
// stands (a use of a block when none is live) is left out.
const opBytes = 2 + 2*wordBytes

// wordBytes has a bit for each of MaxBlocks.
const wordBytes = MaxBlocks / 8

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
	first, second := binary.LittleEndian.Uint32(data[2:]), binary.LittleEndian.Uint32(data[2+wordBytes:])
	o := Op{Kind: kind, Stream: data[1] % uint8(b.Streams)}
	if kind != Alloc && !b.has(kind) {
		return o, false
	}
	switch kind {
	case Alloc:
		o.Block = s.made
		if o.Units = uint8(first); !slices.Contains(b.sizes(), o.Units) {
			o.Units = b.sizes()[int(first)%len(b.sizes())]
		}
		return o, int(s.made) < b.Blocks
	case Free, Record, FaultyRecord:
		if s.live == 0 {
			return o, false
		}
		o.Block = s.liveBlock(first)
	case Launch, Abort, Faulty:
		o.Writes = s.live.ranked(first)
		o.Reads = s.live.ranked(second &^ first)
		return o, o.Reads|o.Writes != 0
	}
	if kind == Free {
		o.Stream = 0
	}
	return o, true
}

// liveBlock is the n-th live block, counted round and round.
func (s state) liveBlock(n uint32) uint8 {
	left := int(n % uint32(s.live.Len()))
	for b := range s.live.All() {
		if left == 0 {
			return b
		}
		left--
	}
	return 0 // not reached: some block is live
}

// ranked is the members of s whose rank is a bit of which.
func (s Set) ranked(which uint32) (picked Set) {
	rank := 0
	for b := range s.All() {
		if which>>rank&1 != 0 {
			picked |= 1 << b
		}
		rank++
	}
	return picked
}

// ranks is the opposite of ranked.
func (s Set) ranks(picked Set) (which uint32) {
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

// Encode is the bytes that Decode makes p of.
func (p Program) Encode() []byte {
	var data []byte
	var s state
	for _, o := range p {
		first, second := s.live.ranks(o.Writes), s.live.ranks(o.Reads)
		switch {
		case o.Kind == Alloc:
			first = uint32(o.Units)
		case o.Kind == Free || o.IsRecord():
			first = uint32((s.live & (1<<o.Block - 1)).Len())
		}
		data = append(data, byte(o.Kind), o.Stream)
		data = binary.LittleEndian.AppendUint32(data, first)
		data = binary.LittleEndian.AppendUint32(data, second)
		s = s.after(o)
	}
	return data
}
