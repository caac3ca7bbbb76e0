package overlap

import (
	"slices"

	"github.com/fencepost-gpu/fencepost/dev/proof/program"
)

// quickSetups leave a stream with memory of its own and with slack in its books, so that the quick
// path serves its next allocation.
var quickSetups = []program.Program{
	// nothing is in its way
	{pooled(streamX, 0, onePage), free(0)},
	// nor is a block that lives
	{pooled(streamX, 0, onePage), pooled(streamX, 1, onePage), free(0)},
	// Y has used the block that lives
	{pooled(streamX, 0, onePage), pooled(streamX, 1, onePage), use(program.Launch, streamY, noBlock, b), free(0)},
	// a launch over it is open
	{pooled(streamX, 0, onePage), pooled(streamX, 1, onePage), use(program.Open, streamX, noBlock, b), free(0)},
	// Y may take over what is free
	{pooled(streamX, 0, twoPages), pooled(streamX, 1, onePage), free(0), use(program.Launch, streamX, noBlock, b), use(program.Launch, streamY, b, noBlock)},
	// Y has to steal it
	{pooled(streamX, 0, twoPages), pooled(streamX, 1, onePage), use(program.Launch, streamX, noBlock, a), free(0)},
}

// quickGivenUp are set-ups with an adopted stream, which the path declines, beside one that it serves.
var quickGivenUp = []program.Program{
	{pooled(streamX, 0, onePage), pooled(Adopted, 1, onePage), free(0)},
	{pooled(Adopted, 0, onePage), pooled(streamX, 1, onePage), pooled(streamX, 2, onePage), free(2), use(program.Launch, streamX, noBlock, a)},
}

// quickLetters are those of the pool, with the sizes that a stream has at hand.
func quickLetters(setup program.Program) program.Program {
	letters := append(poolLetters(setup), pooled(streamX, 0, halfPage))
	if after(setup).adopted {
		letters = append(letters, pooled(Adopted, 0, onePage))
	}
	return letters
}

// againLetters have records and memory used again while others look for them.
func againLetters(setup program.Program) program.Program {
	letters := program.Program{pooled(streamX, 0, onePage), pooled(streamY, 0, twoPages), free(latest), use(program.Launch, streamY, newest, noBlock), on(program.Trim, 0)}
	if after(setup).live.Has(1) {
		letters = append(letters, free(1), use(program.Launch, streamX, noBlock, b), use(program.Launch, streamY, b, noBlock))
	}
	return letters
}

// quickFamilies are those over the runtime's own pool whose allocations and frees go by the
// quick path, as far as that serves them.
func quickFamilies(all bool) []*Family {
	quick := &Family{Name: "quick", Shape: []int{1, 1}, Preemptions: 1, setups: quickSetups, letters: quickLetters, entered: true}
	givenUp := &Family{Name: "quickgivenup", Shape: []int{1, 1}, Preemptions: 1, setups: quickGivenUp, letters: quickLetters, entered: true}
	again := &Family{Name: "quickagain", Shape: []int{2, 1}, Preemptions: 1, setups: quickSetups[1:3], letters: againLetters, entered: true}
	if all {
		quick.Preemptions = 2
		quick.setups = slices.Concat(quickSetups[:4], poolSetups) // which have the others
		givenUp.Preemptions, again.Preemptions = 2, 2
		again.setups = quickSetups
	}
	return []*Family{quick, givenUp, again}
}
