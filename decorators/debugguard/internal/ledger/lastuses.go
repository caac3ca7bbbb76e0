package ledger

import (
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
)

// usesKept is how many uses of a block the ledger remembers.
const usesKept = 4

// Use is one use of a block, packed.
type Use struct {
	// what is the launch's number, of which 46 bits are kept, below it that of its name,
	// and below that the access.
	what   uint64
	stream core.StreamID
	at     monotime.Instant
}

// nameBits hold the number of a name: there are maxNames of them.
const (
	accessBits = 2
	nameBits   = 16
)

// Pack packs a use by a launch of that number and name, prepared at that time.
func (l *Ledger) Pack(launch uint64, name string, stream core.StreamID, access core.Access, at monotime.Instant) Use {
	return Use{what: launch<<(nameBits+accessBits) | uint64(l.Names.Number(name))<<accessBits | uint64(access), stream: stream, at: at}
}

// By is the use by another launch of the same name.
func (u Use) By(launch uint64, stream core.StreamID, at monotime.Instant) Use {
	return Use{what: u.what&(1<<(nameBits+accessBits)-1) | launch<<(nameBits+accessBits), stream: stream, at: at}
}

// As is the use with another access.
func (u Use) As(a core.Access) Use {
	u.what = u.what&^(1<<accessBits-1) | uint64(a)
	return u
}

func (u Use) access() core.Access { return core.Access(u.what & (1<<accessBits - 1)) }
func (u Use) name() uint32        { return uint32(u.what >> accessBits & (1<<nameBits - 1)) }
func (u Use) launch() uint64      { return u.what >> (nameBits + accessBits) }

// Note adds a use; the lock must be held.
func (rec *Record) Note(u Use) {
	at := rec.used % usesKept
	rec.uses[at] = u
	rec.used++
	if rec.extra != nil {
		rec.extra.spans[at] = core.SpanRef{}
	}
	if rec.writer == 0 && u.access().Writes() {
		rec.writer = max(u.launch(), 1)
	}
}

// Traced completes a use with the span that it got after it was prepared; the lock
// must be held.
func (rec *Record) Traced(launch uint64, span core.SpanRef) {
	for i := range min(rec.used, usesKept) {
		if rec.uses[i].launch() == launch {
			rec.more().spans[i] = span
		}
	}
}

// Retract takes back the use by a launch that was aborted; the lock must be held.
// An older use that it displaced is not brought back.
func (rec *Record) Retract(launch uint64) {
	for i := range min(rec.used, usesKept) {
		if rec.uses[i].launch() != launch {
			continue
		}
		rec.uses[i] = Use{}
		if i == (rec.used-1)%usesKept {
			rec.used--
		}
	}
	if rec.writer == launch {
		rec.writer = rec.anotherWriter()
	}
}

// anotherWriter is a launch among the uses kept that wrote the block. If some
// are forgotten, one of those may have.
func (rec *Record) anotherWriter() uint64 {
	for i := range min(rec.used, usesKept) {
		if rec.uses[i].access().Writes() {
			return max(rec.uses[i].launch(), 1)
		}
	}
	if rec.used > usesKept {
		return 1
	}
	return 0
}

// LastUses returns the uses kept, newest first, and how many are forgotten;
// the lock must be held.
func (l *Ledger) LastUses(rec *Record) (uses []core.UseRecord, older uint64) {
	for i := range min(rec.used, usesKept) {
		at := (rec.used - 1 - i) % usesKept
		u := rec.uses[at]
		if u == (Use{}) {
			continue
		}
		known := core.UseRecord{LaunchID: u.launch(), Launch: l.Names.name(u.name()), Stream: u.stream,
			Access: u.access(), Time: u.at.Time()}
		if rec.extra != nil {
			known.Span = rec.extra.spans[at]
		}
		uses = append(uses, known)
	}
	return uses, uint64(rec.used) - uint64(len(uses))
}

// Info describes the block of generation g to an inspector; it is of no
// generation if rec is not that block's any more.
func (l *Ledger) Info(g core.Generation, rec *Record) core.BlockInfo {
	if !rec.Lock(g) {
		return core.BlockInfo{}
	}
	defer rec.Unlock()
	return l.Describe(rec)
}

// Describe is info of a record that is locked.
func (l *Ledger) Describe(rec *Record) core.BlockInfo {
	uses, _ := l.LastUses(rec)
	allocated, freed := rec.Stacks()
	info := core.BlockInfo{Block: rec.Block(), AllocStack: allocated, FreeStack: freed, Uses: uses}
	info.Allocated, info.Freed = rec.Times()
	if rec.extra != nil {
		info.AllocSpan = rec.extra.allocSpan
	}
	return info
}
