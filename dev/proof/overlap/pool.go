package overlap

import (
	"slices"

	"github.com/fencepost-gpu/fencepost/dev/proof"
	"github.com/fencepost-gpu/fencepost/dev/proof/program"
)

// The sizes of blocks from the runtime's own pool, of the three pages that it may have.
const (
	halfPage uint8 = proof.PoolUnits / 2
	onePage  uint8 = proof.PoolUnits
	twoPages uint8 = 2 * proof.PoolUnits
)

func pooled(stream, block, units uint8) program.Op {
	return program.Op{Kind: program.Alloc, Stream: stream, Block: block, Units: units}
}

// poolSetups leave a pool that has memory for another stream only by what the comment says.
var poolSetups = []program.Program{
	// growth: there is more on the device
	{pooled(streamX, 0, onePage)},
	// steal: the memory was freed behind a launch that nothing comes after
	{pooled(streamX, 0, twoPages), pooled(streamX, 1, onePage), use(program.Launch, streamX, noBlock, a), free(0)},
	// takeover: Y comes after a launch behind the free
	{pooled(streamX, 0, twoPages), pooled(streamX, 1, onePage), free(0), use(program.Launch, streamX, noBlock, b), use(program.Launch, streamY, b, noBlock)},
	// remap: free pages that do not lie in a row
	{pooled(streamX, 0, onePage), pooled(streamY, 1, onePage), pooled(streamX, 2, onePage), use(program.Launch, streamX, noBlock, a), free(0), free(2)},
	// free pages of two streams in a row
	{pooled(streamX, 0, onePage), pooled(streamY, 1, onePage), use(program.Launch, streamX, noBlock, a), pooled(streamX, 2, onePage), free(0)},
	// a row of which Y has one page and comes after the free of the other
	{pooled(streamX, 0, onePage), pooled(streamY, 1, onePage), pooled(streamX, 2, onePage), free(0), free(1), use(program.Launch, streamX, noBlock, c), use(program.Launch, streamY, c, noBlock)},
	// halves of a page
	{pooled(streamX, 0, halfPage), pooled(streamX, 1, halfPage), pooled(streamX, 2, twoPages), use(program.Launch, streamY, noBlock, a), free(0)},
	// a free that a launch holds back
	{pooled(streamX, 0, twoPages), pooled(streamX, 1, onePage), use(program.Open, streamY, a, noBlock), free(0)},
}

// poolGivenUp are set-ups with an adopted stream that has memory.
var poolGivenUp = []program.Program{
	{pooled(Adopted, 0, twoPages), pooled(Adopted, 1, onePage), use(program.Launch, Adopted, noBlock, a), free(0)},
	{pooled(Adopted, 0, twoPages), pooled(Adopted, 1, onePage), use(program.Launch, streamY, noBlock, a), on(program.Release, Adopted)},
	{pooled(Adopted, 0, twoPages), pooled(Adopted, 1, onePage), use(program.Launch, Adopted, noBlock, a), free(0), on(program.Release, Adopted)},
}

// poolReleased are set-ups in which an adopted stream may be given up while it steals.
var poolReleased = []program.Program{
	{pooled(streamX, 0, twoPages), pooled(Adopted, 1, onePage), use(program.Launch, streamX, noBlock, a), free(0)},
}

// poolLetters are what moves the memory of a pool, and what uses it.
func poolLetters(setup program.Program) program.Program {
	k := after(setup)
	letters := program.Program{pooled(streamX, 0, onePage), pooled(streamX, 0, twoPages), pooled(streamY, 0, twoPages), {Kind: program.Alloc, Stream: streamY, Units: twoPages, AtOnce: true}, on(program.ReapDone, 0), on(program.Trim, 0)}
	for block := range k.live.All() {
		letters = append(letters, free(block), use(program.Launch, streamX, noBlock, 1<<block), use(program.Launch, streamY, 1<<block, noBlock))
	}
	for open := range k.opened {
		letters = append(letters, end(program.Finish, open))
	}
	if k.adopted {
		letters = append(letters, on(program.Release, Adopted))
	}
	return letters
}

// everyPoolLetter has all sizes on both streams, too.
func everyPoolLetter(setup program.Program) program.Program {
	letters := poolLetters(setup)
	k := after(setup)
	for _, s := range k.streams() {
		for _, units := range []uint8{halfPage, onePage, twoPages} {
			for _, quick := range []bool{false, true} {
				c := pooled(s, 0, units)
				c.AtOnce = quick
				if !slices.Contains(letters, c) {
					letters = append(letters, c)
				}
			}
		}
	}
	for open := range k.opened {
		letters = append(letters, end(program.Cancel, open))
	}
	return append(letters, on(program.Sync, streamX), on(program.Peek, 0))
}

// usingPoolLetters are what longer goroutines are made of: they use the memory that they get.
func usingPoolLetters(setup program.Program) program.Program {
	letters := program.Program{pooled(streamX, 0, onePage), pooled(streamY, 0, twoPages), use(program.Launch, streamY, noBlock, newest), free(latest)}
	if after(setup).live.Has(1) {
		letters = append(letters, free(1))
	}
	return letters
}

// movingLetters move memory between two streams.
func movingLetters(program.Program) program.Program {
	return program.Program{pooled(streamX, 0, onePage), pooled(streamY, 0, onePage), pooled(streamY, 0, twoPages), on(program.ReapDone, 0)}
}

// releasingLetters give the adopted stream up, and want memory there and elsewhere.
func releasingLetters(program.Program) program.Program {
	return program.Program{pooled(Adopted, 0, twoPages), pooled(streamY, 0, twoPages), on(program.Release, Adopted)}
}

// poolFamilies are those over the runtime's own pool.
func poolFamilies(all bool) []*Family {
	pool := &Family{Name: "pool", Shape: []int{1, 1}, Preemptions: 1, setups: poolSetups, letters: poolLetters}
	givenUp := &Family{Name: "poolgivenup", Shape: []int{1, 1}, Preemptions: 1, setups: poolGivenUp, letters: poolLetters}
	longer := &Family{Name: "poollonger", Shape: []int{2, 1}, Preemptions: 1, setups: poolSetups[1:6], letters: usingPoolLetters}
	moving := &Family{Name: "poolmoving", Shape: []int{1, 1}, Preemptions: 2, setups: poolSetups[1:6], letters: movingLetters}
	released := &Family{Name: "poolreleased", Shape: []int{2, 1}, Preemptions: 2, setups: poolReleased, letters: releasingLetters}
	if all {
		pool.letters, givenUp.letters = everyPoolLetter, everyPoolLetter
		givenUp.Preemptions, longer.Preemptions = 2, 2
		longer.setups, longer.letters = poolSetups, poolLetters
	}
	return append([]*Family{pool, givenUp, longer, moving, released}, quickFamilies(all)...)
}
