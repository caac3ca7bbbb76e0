package overlap

import (
	"slices"

	"github.com/fencepost-gpu/fencepost/dev/proof/program"
)

type setups = []program.Program

// bases are the allocations that set-ups begin with.
var bases = setups{
	{alloc(streamX, 0)},
	{alloc(streamX, 0), alloc(streamX, 1)},
	{alloc(streamX, 0), alloc(streamY, 1)},
}

// adoptedBases are those with an adopted stream.
var adoptedBases = setups{
	{alloc(Adopted, 0)},
	{alloc(Adopted, 0), alloc(streamX, 1)},
	{alloc(streamX, 0), launch(Adopted, noBlock, a)},
}

// givenUp are set-ups with a stream that was given up.
var givenUp = setups{
	{alloc(Adopted, 0), on(program.Release, Adopted)},
	{alloc(Adopted, 0), alloc(Adopted, 1), launch(streamY, a, noBlock), free(1), on(program.Release, Adopted)},
	{alloc(Adopted, 0), alloc(Adopted, 1), use(program.Open, streamX, a, noBlock), free(0), on(program.Release, Adopted)},
}

// poolSetups leave a pool that has memory for another stream only by what the comment says.
var poolSetups = setups{
	// growth: there is more on the device
	{pooled(streamX, 0, onePage)},
	// steal: the memory was freed behind a launch that nothing comes after
	{pooled(streamX, 0, twoPages), pooled(streamX, 1, onePage), launch(streamX, noBlock, a), free(0)},
	// takeover: Y comes after a launch behind the free
	{pooled(streamX, 0, twoPages), pooled(streamX, 1, onePage), free(0), launch(streamX, noBlock, b), launch(streamY, b, noBlock)},
	// remap: free pages that do not lie in a row
	{pooled(streamX, 0, onePage), pooled(streamY, 1, onePage), pooled(streamX, 2, onePage), launch(streamX, noBlock, a), free(0), free(2)},
	// free pages of two streams in a row
	{pooled(streamX, 0, onePage), pooled(streamY, 1, onePage), launch(streamX, noBlock, a), pooled(streamX, 2, onePage), free(0)},
	// a row of which Y has one page and comes after the free of the other
	{pooled(streamX, 0, onePage), pooled(streamY, 1, onePage), pooled(streamX, 2, onePage), free(0), free(1), launch(streamX, noBlock, c), launch(streamY, c, noBlock)},
	// halves of a page
	{pooled(streamX, 0, halfPage), pooled(streamX, 1, halfPage), pooled(streamX, 2, twoPages), launch(streamY, noBlock, a), free(0)},
	// a free that a launch holds back
	{pooled(streamX, 0, twoPages), pooled(streamX, 1, onePage), use(program.Open, streamY, a, noBlock), free(0)},
}

// poolGivenUp are set-ups with an adopted stream that has memory.
var poolGivenUp = setups{
	{pooled(Adopted, 0, twoPages), pooled(Adopted, 1, onePage), launch(Adopted, noBlock, a), free(0)},
	{pooled(Adopted, 0, twoPages), pooled(Adopted, 1, onePage), launch(streamY, noBlock, a), on(program.Release, Adopted)},
	{pooled(Adopted, 0, twoPages), pooled(Adopted, 1, onePage), launch(Adopted, noBlock, a), free(0), on(program.Release, Adopted)},
}

// poolReleased are set-ups in which an adopted stream may be given up while it steals.
var poolReleased = setups{
	{pooled(streamX, 0, twoPages), pooled(Adopted, 1, onePage), launch(streamX, noBlock, a), free(0)},
}

// quickSetups leave a stream with memory of its own and with slack in its books, so that its
// next allocation is served at once.
var quickSetups = setups{
	// nothing is in its way
	{pooled(streamX, 0, onePage), free(0)},
	// nor is a block that lives
	{pooled(streamX, 0, onePage), pooled(streamX, 1, onePage), free(0)},
	// Y has used the block that lives
	{pooled(streamX, 0, onePage), pooled(streamX, 1, onePage), launch(streamY, noBlock, b), free(0)},
	// a launch over it is open
	{pooled(streamX, 0, onePage), pooled(streamX, 1, onePage), use(program.Open, streamX, noBlock, b), free(0)},
	// Y may take over what is free
	{pooled(streamX, 0, twoPages), pooled(streamX, 1, onePage), free(0), launch(streamX, noBlock, b), launch(streamY, b, noBlock)},
	// Y has to steal it
	{pooled(streamX, 0, twoPages), pooled(streamX, 1, onePage), launch(streamX, noBlock, a), free(0)},
}

// quickGivenUp are set-ups with an adopted stream, which is served nothing at once, beside one that is.
var quickGivenUp = setups{
	{pooled(streamX, 0, onePage), pooled(Adopted, 1, onePage), free(0)},
	{pooled(Adopted, 0, onePage), pooled(streamX, 1, onePage), pooled(streamX, 2, onePage), free(2), launch(streamX, noBlock, a)},
}

// tailed are bases with what may come behind them.
func tailed(bases setups, streams ...uint8) (list setups) {
	tails := setups{nil, {free(0)}}
	for _, s := range streams {
		for _, kind := range []program.Kind{program.Launch, program.Open} {
			tails = append(tails, program.Program{use(kind, s, a, noBlock)}, program.Program{use(kind, s, noBlock, a)})
		}
		tails = append(tails, program.Program{use(program.Open, s, a, noBlock), free(0)})
	}
	for _, base := range bases {
		for _, tail := range tails {
			list = append(list, slices.Concat(base, tail))
		}
	}
	return list
}

// Families are what is run: in less than a minute on two cores by default, in
// an hour or more if all are asked for.
func Families(all bool) (list []*Family) {
	every := tailed(bases, streamX, streamY)
	for _, f := range []struct {
		name    string
		shape   []int
		entered bool
		few     bound
		whole   bound
	}{
		{"pairs", []int{1, 1}, false, bound{2, append(tailed(bases[:1], streamX, streamY), tailed(bases[1:], streamY)...), commonLetters}, bound{2, every, everyLetter}},
		{"adopted", []int{1, 1}, false, bound{2, append(tailed(adoptedBases[:1]), givenUp...), commonLetters}, bound{2, append(tailed(adoptedBases, Adopted), givenUp...), everyLetter}},
		{"longer", []int{2, 1}, false, bound{2, tailed(bases[1:2]), someLetters}, bound{2, every, someLetters}},
		{"longest", []int{2, 2}, false, bound{1, tailed(bases[1:2]), someLetters}, bound{2, tailed(bases), someLetters}},
		{"recycling", []int{3, 1}, false, bound{1, bases[:1], recyclingLetters}, bound{2, bases[:1], recyclingLetters}},
		{"triples", []int{1, 1, 1}, false, bound{1, tailed(bases), someLetters}, bound{2, tailed(bases), someLetters}},
		{"small", []int{1, 1}, false, bound{3, tailed(bases[:1]), someLetters}, bound{3, every, someLetters}},
		// over the runtime's own pool
		{"pool", []int{1, 1}, false, bound{1, poolSetups, poolLetters}, bound{1, poolSetups, everyPoolLetter}},
		{"poolgivenup", []int{1, 1}, false, bound{1, poolGivenUp, poolLetters}, bound{2, poolGivenUp, everyPoolLetter}},
		{"poollonger", []int{2, 1}, false, bound{1, poolSetups[1:6], usingPoolLetters}, bound{2, poolSetups, poolLetters}},
		{"poolmoving", []int{1, 1}, false, bound{2, poolSetups[1:6], movingLetters}, bound{2, poolSetups[1:6], movingLetters}},
		{"poolreleased", []int{2, 1}, false, bound{2, poolReleased, releasingLetters}, bound{2, poolReleased, releasingLetters}},
		// whose allocations and frees are served at once, as far as they can be
		{"quick", []int{1, 1}, true, bound{1, quickSetups, quickLetters}, bound{2, slices.Concat(quickSetups[:4], poolSetups), quickLetters}},
		{"quickgivenup", []int{1, 1}, true, bound{1, quickGivenUp, quickLetters}, bound{2, quickGivenUp, quickLetters}},
		{"quickagain", []int{2, 1}, true, bound{1, quickSetups[1:3], againLetters}, bound{2, quickSetups, againLetters}},
	} {
		b := f.few
		if all {
			b = f.whole
		}
		list = append(list, &Family{Name: f.name, Shape: f.shape, bound: b, entered: f.entered})
	}
	return list
}
