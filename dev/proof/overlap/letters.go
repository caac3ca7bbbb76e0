package overlap

import (
	"slices"

	"github.com/fencepost-gpu/fencepost/dev/proof"
	"github.com/fencepost-gpu/fencepost/dev/proof/program"
)

// The streams. Adopted is the one that is an adopted stream; those before it are leased.
const (
	streamX, streamY uint8 = 0, 1
	Adopted          uint8 = 2
)

// The sizes of blocks from the runtime's own pool, of the three pages that it may have.
const (
	halfPage uint8 = proof.PoolUnits / 2
	onePage  uint8 = proof.PoolUnits
	twoPages uint8 = 2 * proof.PoolUnits
)

// latest stands for the block that the goroutine allocated last.
const latest = program.MaxBlocks - 1

// Some sets of blocks.
const (
	noBlock program.Set = 0
	a       program.Set = 1 << 0
	b       program.Set = 1 << 1
	c       program.Set = 1 << 2
	newest  program.Set = 1 << latest
)

func alloc(stream, block uint8) program.Op         { return pooled(stream, block, 0) }
func free(block uint8) program.Op                  { return program.Op{Kind: program.Free, Block: block} }
func end(kind program.Kind, open uint8) program.Op { return program.Op{Kind: kind, Block: open} }
func on(kind program.Kind, stream uint8) program.Op {
	return program.Op{Kind: kind, Stream: stream}
}
func use(kind program.Kind, stream uint8, reads, writes program.Set) program.Op {
	return program.Op{Kind: kind, Stream: stream, Reads: reads, Writes: writes}
}
func launch(stream uint8, reads, writes program.Set) program.Op {
	return use(program.Launch, stream, reads, writes)
}
func record(stream, block uint8) program.Op {
	return program.Op{Kind: program.Record, Stream: stream, Block: block}
}
func pooled(stream, block, units uint8) program.Op {
	return program.Op{Kind: program.Alloc, Stream: stream, Block: block, Units: units}
}

// atOnce is an allocation for which the device is done with all that it is asked for.
func atOnce(o program.Op) program.Op {
	o.AtOnce = true
	return o
}

// known is what is known after a set-up: which blocks live, how many were made and how many launches
// opened, and the streams there are.
type known struct {
	live           program.Set
	blocks, opened uint8
	streams        []uint8
}

func after(setup program.Program) known {
	k := known{streams: []uint8{streamX, streamY}}
	adopted := false
	for _, o := range setup {
		adopted = o.Kind != program.Release && (adopted || o.Stream == Adopted)
		switch o.Kind {
		case program.Alloc:
			k.live |= 1 << k.blocks
			k.blocks++
		case program.Free:
			k.live &^= 1 << o.Block
		case program.Open:
			k.opened++
		}
	}
	if adopted {
		k.streams = append(k.streams, Adopted)
	}
	return k
}

// allows reports whether a goroutine may make a call after the set-up.
func (k *known) allows(o program.Op) bool {
	switch {
	case o.IsLaunch() && o.Touches() == 0, !slices.Contains(k.streams, o.Stream):
		return false
	case o.Kind == program.Finish || o.Kind == program.Cancel:
		return o.Block < k.opened
	}
	return o.Touches()&^(k.live|newest) == 0
}

// some are those of the calls that a goroutine may make, each once.
func (k *known) some(calls ...program.Program) (letters program.Program) {
	for _, o := range slices.Concat(calls...) {
		if k.allows(o) && !slices.Contains(letters, o) {
			letters = append(letters, o)
		}
	}
	return letters
}

// each are the calls on each stream.
func (k *known) each(calls func(stream uint8) program.Program) (all program.Program) {
	for _, s := range k.streams {
		all = append(all, calls(s)...)
	}
	return all
}

// ends are the ends of launches that the set-up has opened.
var ends = program.Program{end(program.Finish, 0), end(program.Cancel, 0), end(program.Finish, 1), end(program.Cancel, 1)}

// rest are allocations, frees, the ends of open launches, and what concerns all blocks.
func (k *known) rest() program.Program {
	allocs := k.each(func(s uint8) program.Program { return program.Program{alloc(s, 0)} })
	return slices.Concat(allocs, program.Program{free(0), free(1)}, ends, program.Program{on(program.Release, Adopted), on(program.ReapDone, 0)})
}

// everyLetter is all that a goroutine may do after a set-up with two blocks.
func everyLetter(k known) program.Program {
	return k.some(k.each(func(s uint8) program.Program {
		return program.Program{
			launch(s, noBlock, a|b), launch(s, a, b), launch(s, noBlock, b), launch(s, b, a), launch(s, noBlock, a), launch(s, a|b, noBlock), launch(s, b, noBlock), launch(s, a, noBlock),
			record(s, 0), record(s, 1), use(program.Abort, s, k.live, noBlock), on(program.Sync, s),
		}
	}), k.rest(), program.Program{on(program.Peek, 0)})
}

// commonLetters are the most part of them.
func commonLetters(k known) program.Program {
	return k.some(k.each(func(s uint8) program.Program {
		return program.Program{launch(s, a, noBlock), launch(s, noBlock, a), launch(s, k.live, noBlock), launch(s, noBlock, k.live), launch(s, a, b)}
	}), program.Program{use(program.Abort, streamY, noBlock, a), record(streamY, 0), on(program.Sync, streamX)}, k.rest())
}

// someLetters are those that longer goroutines are made of.
func someLetters(k known) program.Program {
	return k.some(program.Program{
		alloc(streamX, 0), launch(streamY, newest, noBlock), free(latest), on(program.ReapDone, 0),
		launch(streamX, noBlock, a), launch(streamY, a, noBlock), free(0), launch(streamY, k.live&a, b), free(1), end(program.Finish, 0), end(program.Finish, 1),
	})
}

// recyclingLetters have records of blocks used again while others look for
// them.
func recyclingLetters(k known) program.Program {
	return k.some(program.Program{alloc(streamX, 0), launch(streamY, a, noBlock), launch(streamX, noBlock, a), free(0), on(program.ReapDone, 0)})
}

// poolLetters are what moves the memory of a pool, and what uses it.
func poolLetters(k known) program.Program {
	calls := program.Program{
		pooled(streamX, 0, onePage), pooled(streamX, 0, twoPages), pooled(streamY, 0, twoPages), atOnce(pooled(streamY, 0, twoPages)),
		on(program.ReapDone, 0), on(program.Trim, 0), end(program.Finish, 0), on(program.Release, Adopted),
	}
	for block := range k.live.All() {
		calls = append(calls, free(block), launch(streamX, noBlock, 1<<block), launch(streamY, 1<<block, noBlock))
	}
	return k.some(calls)
}

// everyPoolLetter has all sizes on both streams, too.
func everyPoolLetter(k known) program.Program {
	return k.some(poolLetters(k), k.each(func(s uint8) (sizes program.Program) {
		for _, units := range []uint8{halfPage, onePage, twoPages} {
			sizes = append(sizes, pooled(s, 0, units), atOnce(pooled(s, 0, units)))
		}
		return sizes
	}), ends, program.Program{on(program.Sync, streamX), on(program.Peek, 0)})
}

// usingPoolLetters are what longer goroutines are made of: they use the memory that they get.
func usingPoolLetters(k known) program.Program {
	return k.some(program.Program{pooled(streamX, 0, onePage), pooled(streamY, 0, twoPages), launch(streamY, noBlock, newest), free(latest), free(1)})
}

// movingLetters move memory between two streams.
func movingLetters(k known) program.Program {
	return k.some(program.Program{pooled(streamX, 0, onePage), pooled(streamY, 0, onePage), pooled(streamY, 0, twoPages), on(program.ReapDone, 0)})
}

// releasingLetters give the adopted stream up, and want memory there and elsewhere.
func releasingLetters(k known) program.Program {
	return k.some(program.Program{pooled(Adopted, 0, twoPages), pooled(streamY, 0, twoPages), on(program.Release, Adopted)})
}

// quickLetters are those of the pool, with the sizes that a stream has at hand.
func quickLetters(k known) program.Program {
	return k.some(poolLetters(k), program.Program{pooled(streamX, 0, halfPage), pooled(Adopted, 0, onePage)})
}

// againLetters have records and memory used again while others look for them.
func againLetters(k known) program.Program {
	return k.some(program.Program{
		pooled(streamX, 0, onePage), pooled(streamY, 0, twoPages), free(latest), launch(streamY, newest, noBlock), on(program.Trim, 0),
		free(1), launch(streamX, noBlock, b), launch(streamY, b, noBlock),
	})
}
