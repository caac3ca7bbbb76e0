package ledger

import "github.com/fencepost-gpu/fencepost/core"

// usesKept is how many uses of a block the ledger remembers.
const usesKept = 4

// Use is one use of a block, packed.
type Use struct {
	launch uint64
	stream core.StreamID
	at     Instant
	// what is the number of the launch's name, and below it the access.
	what uint32
}

const accessBits = 2

// Pack packs a use of now by a launch of that number and name.
func (l *Ledger) Pack(launch uint64, name string, stream core.StreamID, access core.Access) Use {
	return Use{launch: launch, stream: stream, at: l.Clock.Instant(), what: l.Names.Number(name)<<accessBits | uint32(access)}
}

// As is the use with another access.
func (u Use) As(a core.Access) Use {
	u.what = u.what&^(1<<accessBits-1) | uint32(a)
	return u
}

func (u Use) access() core.Access { return core.Access(u.what & (1<<accessBits - 1)) }

// Note adds a use; the lock must be held.
func (rec *Record) Note(u Use) {
	at := rec.used % usesKept
	rec.uses[at] = u
	rec.used++
	if rec.extra != nil {
		rec.extra.spans[at] = core.SpanRef{}
	}
	if rec.writer == 0 && u.access().Writes() {
		rec.writer = max(u.launch, 1)
	}
}

// Traced completes a use with the span that it got after it was prepared; the lock
// must be held.
func (rec *Record) Traced(launch uint64, span core.SpanRef) {
	for i := range min(rec.used, usesKept) {
		if rec.uses[i].launch == launch {
			rec.more().spans[i] = span
		}
	}
}

// Retract takes back the use by a launch that was aborted; the lock must be held.
// An older use that it displaced is not brought back.
func (rec *Record) Retract(launch uint64) {
	for i := range min(rec.used, usesKept) {
		if rec.uses[i].launch != launch {
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
			return max(rec.uses[i].launch, 1)
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
		known := core.UseRecord{LaunchID: u.launch, Launch: l.Names.name(u.what >> accessBits), Stream: u.stream,
			Access: u.access(), Time: l.Clock.Time(u.at)}
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
	info := core.BlockInfo{Block: rec.Block(), AllocStack: allocated, FreeStack: freed, Uses: uses, Allocated: l.Clock.Time(rec.born)}
	if rec.extra != nil {
		info.AllocSpan = rec.extra.allocSpan
	}
	return info
}
