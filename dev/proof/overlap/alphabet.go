package overlap

import "github.com/fencepost-gpu/fencepost/dev/proof/program"

// known is what is known after a set-up.
type known struct {
	live    program.Set
	blocks  uint8
	opened  uint8
	adopted bool
}

func after(setup program.Program) (k known) {
	for _, c := range setup {
		k.adopted = k.adopted && c.Kind != program.Release || c.Kind != program.Release && c.Stream == Adopted
		switch c.Kind {
		case program.Alloc:
			k.live |= 1 << k.blocks
			k.blocks++
		case program.Free:
			k.live &^= 1 << c.Block
		case program.Open:
			k.opened++
		}
	}
	return k
}

func (k known) streams() []uint8 {
	if k.adopted {
		return []uint8{streamX, streamY, Adopted}
	}
	return []uint8{streamX, streamY}
}

// everyLetter is all that a goroutine may do after a set-up.
func everyLetter(setup program.Program) (letters program.Program) {
	k := after(setup)
	for _, s := range k.streams() {
		letters = append(letters, k.launches(s)...)
		for block := range k.live.All() {
			letters = append(letters, program.Op{Kind: program.Record, Stream: s, Block: block})
		}
		if k.live != 0 {
			letters = append(letters, use(program.Abort, s, k.live, noBlock))
		}
		letters = append(letters, on(program.Sync, s))
	}
	return append(k.rest(letters...), on(program.Peek, 0))
}

// launches are those on a stream that use live blocks.
func (k known) launches(s uint8) (letters program.Program) {
	for writes := k.live; ; writes = (writes - 1) & k.live {
		for reads := k.live &^ writes; ; reads = (reads - 1) & (k.live &^ writes) {
			if reads|writes != 0 {
				letters = append(letters, use(program.Launch, s, reads, writes))
			}
			if reads == 0 {
				break
			}
		}
		if writes == 0 {
			return letters
		}
	}
}

// commonLetters are the most part of them.
func commonLetters(setup program.Program) (letters program.Program) {
	k := after(setup)
	for _, s := range k.streams() {
		if k.live.Has(0) {
			letters = append(letters, use(program.Launch, s, a, noBlock), use(program.Launch, s, noBlock, a))
		}
		if k.live.Has(1) {
			letters = append(letters, use(program.Launch, s, k.live, noBlock), use(program.Launch, s, noBlock, k.live))
		}
		if k.live == both {
			letters = append(letters, use(program.Launch, s, a, b))
		}
	}
	if k.live.Has(0) {
		letters = append(letters, use(program.Abort, streamY, noBlock, a), program.Op{Kind: program.Record, Stream: streamY, Block: 0})
	}
	return k.rest(append(letters, on(program.Sync, streamX))...)
}

// rest adds the frees, the ends of open launches, and what concerns all blocks.
func (k known) rest(letters ...program.Op) program.Program {
	for _, s := range k.streams() {
		letters = append(letters, on(program.Alloc, s))
	}
	for block := range k.live.All() {
		letters = append(letters, free(block))
	}
	for open := range k.opened {
		letters = append(letters, end(program.Finish, open), end(program.Cancel, open))
	}
	if k.adopted {
		letters = append(letters, on(program.Release, Adopted))
	}
	return append(letters, on(program.ReapDone, 0))
}

// someLetters are those that longer goroutines are made of.
func someLetters(setup program.Program) program.Program {
	k := after(setup)
	letters := program.Program{on(program.Alloc, streamX), use(program.Launch, streamY, newest, noBlock), free(latest), on(program.ReapDone, 0)}
	if k.live.Has(0) {
		letters = append(letters, use(program.Launch, streamX, noBlock, a), use(program.Launch, streamY, a, noBlock), free(0))
	}
	if k.live.Has(1) {
		letters = append(letters, use(program.Launch, streamY, k.live&a, b), free(1))
	}
	for open := range k.opened {
		letters = append(letters, end(program.Finish, open))
	}
	return letters
}

// recyclingLetters have records of blocks used again while others look for
// them.
func recyclingLetters(program.Program) program.Program {
	return program.Program{on(program.Alloc, streamX), use(program.Launch, streamY, a, noBlock), use(program.Launch, streamX, noBlock, a), free(0), on(program.ReapDone, 0)}
}
