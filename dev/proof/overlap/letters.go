package overlap

import "github.com/fencepost-gpu/fencepost/dev/proof/program"

// known is what is known after a set-up.
type known struct {
	live    program.Set
	blocks  uint8
	opened  uint8
	adopted bool
}

func after(setup []Call) (k known) {
	for _, c := range setup {
		k.adopted = k.adopted && c.Kind != Release || c.Kind != Release && c.Stream == Adopted
		switch c.Kind {
		case Alloc:
			k.live |= 1 << k.blocks
			k.blocks++
		case Free:
			k.live &^= 1 << c.Which
		case Open:
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
func everyLetter(setup []Call) (letters []Call) {
	k := after(setup)
	for _, s := range k.streams() {
		letters = append(letters, k.launches(s)...)
		for block := range k.live.All() {
			letters = append(letters, Call{Kind: Record, Stream: s, Which: block})
		}
		if k.live != 0 {
			letters = append(letters, use(Abort, s, k.live, noBlock))
		}
		letters = append(letters, on(Sync, s))
	}
	return append(k.rest(letters...), on(Peek, 0))
}

// launches are those on a stream that use live blocks.
func (k known) launches(s uint8) (letters []Call) {
	for writes := k.live; ; writes = (writes - 1) & k.live {
		for reads := k.live &^ writes; ; reads = (reads - 1) & (k.live &^ writes) {
			if reads|writes != 0 {
				letters = append(letters, use(Launch, s, reads, writes))
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
func commonLetters(setup []Call) (letters []Call) {
	k := after(setup)
	for _, s := range k.streams() {
		if k.live.Has(0) {
			letters = append(letters, use(Launch, s, a, noBlock), use(Launch, s, noBlock, a))
		}
		if k.live.Has(1) {
			letters = append(letters, use(Launch, s, k.live, noBlock), use(Launch, s, noBlock, k.live))
		}
		if k.live == both {
			letters = append(letters, use(Launch, s, a, b))
		}
	}
	if k.live.Has(0) {
		letters = append(letters, use(Abort, streamY, noBlock, a), Call{Kind: Record, Stream: streamY, Which: 0})
	}
	return k.rest(append(letters, on(Sync, streamX))...)
}

// rest adds the frees, the ends of open launches, and what concerns all blocks.
func (k known) rest(letters ...Call) []Call {
	for _, s := range k.streams() {
		letters = append(letters, on(Alloc, s))
	}
	for block := range k.live.All() {
		letters = append(letters, free(block))
	}
	for open := range k.opened {
		letters = append(letters, end(Finish, open), end(Cancel, open))
	}
	if k.adopted {
		letters = append(letters, on(Release, Adopted))
	}
	return append(letters, on(Reap, 0))
}

// someLetters are those that longer goroutines are made of.
func someLetters(setup []Call) []Call {
	k := after(setup)
	letters := []Call{on(Alloc, streamX), use(Launch, streamY, newest, noBlock), free(latest), on(Reap, 0)}
	if k.live.Has(0) {
		letters = append(letters, use(Launch, streamX, noBlock, a), use(Launch, streamY, a, noBlock), free(0))
	}
	if k.live.Has(1) {
		letters = append(letters, use(Launch, streamY, k.live&a, b), free(1))
	}
	for open := range k.opened {
		letters = append(letters, end(Finish, open))
	}
	return letters
}

// recyclingLetters have records of blocks used again while others look for
// them.
func recyclingLetters([]Call) []Call {
	return []Call{on(Alloc, streamX), use(Launch, streamY, a, noBlock), use(Launch, streamX, noBlock, a), free(0), on(Reap, 0)}
}
