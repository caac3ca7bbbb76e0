package debugguard

import "github.com/fencepost-gpu/fencepost/core"

// usesKept is how many uses of a block the ledger remembers.
const usesKept = 4

// use is one use of a block, packed.
type use struct {
	launch uint64
	stream core.StreamID
	at     instant
	// what is the number of the launch's name, and below it the access.
	what uint32
}

const accessBits = 2

func packUse(u core.UseRecord, name uint32, at instant) use {
	return use{launch: u.LaunchID, stream: u.Stream, at: at, what: name<<accessBits | uint32(u.Access)}
}

// as is the use with another access.
func (u use) as(a core.Access) use {
	u.what = u.what&^(1<<accessBits-1) | uint32(a)
	return u
}

func (u use) access() core.Access { return core.Access(u.what & (1<<accessBits - 1)) }

// note adds a use; mu must be held.
func (rec *record) note(u use) {
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

// traced completes a use with the span that it got after it was prepared; mu
// must be held.
func (rec *record) traced(launch uint64, span core.SpanRef) {
	for i := range min(rec.used, usesKept) {
		if rec.uses[i].launch == launch {
			rec.more().spans[i] = span
		}
	}
}

// retract takes back the use by a launch that was aborted; mu must be held.
// An older use that it displaced is not brought back.
func (rec *record) retract(launch uint64) {
	for i := range min(rec.used, usesKept) {
		if rec.uses[i].launch != launch {
			continue
		}
		rec.uses[i] = use{}
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
func (rec *record) anotherWriter() uint64 {
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

// lastUses returns the uses kept, newest first, and how many are forgotten;
// mu must be held.
func (l *ledger) lastUses(rec *record) (uses []core.UseRecord, older uint64) {
	for i := range min(rec.used, usesKept) {
		at := (rec.used - 1 - i) % usesKept
		u := rec.uses[at]
		if u == (use{}) {
			continue
		}
		known := core.UseRecord{LaunchID: u.launch, Launch: l.names.name(u.what >> accessBits), Stream: u.stream,
			Access: u.access(), Time: l.clock.time(u.at)}
		if rec.extra != nil {
			known.Span = rec.extra.spans[at]
		}
		uses = append(uses, known)
	}
	return uses, uint64(rec.used) - uint64(len(uses))
}

// info describes the block of generation g to an inspector; it is of no
// generation if rec is not that block's any more.
func (l *ledger) info(g core.Generation, rec *record) core.BlockInfo {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if rec.generation() != g {
		return core.BlockInfo{}
	}
	return l.describe(rec)
}

// describe is info of a record that is locked.
func (l *ledger) describe(rec *record) core.BlockInfo {
	uses, _ := l.lastUses(rec)
	allocated, freed := rec.stacks()
	return core.BlockInfo{Block: rec.block(), AllocStack: allocated, FreeStack: freed, Uses: uses, Allocated: l.clock.time(rec.born)}
}
