package overlap

import (
	"slices"

	"github.com/fencepost-gpu/fencepost/dev/proof/program"
)

// The streams.
const (
	streamX, streamY uint8 = 0, 1
)

func alloc(stream, block uint8) program.Op {
	return program.Op{Kind: program.Alloc, Stream: stream, Block: block}
}
func free(block uint8) program.Op                   { return program.Op{Kind: program.Free, Block: block} }
func end(kind program.Kind, open uint8) program.Op  { return program.Op{Kind: kind, Block: open} }
func on(kind program.Kind, stream uint8) program.Op { return program.Op{Kind: kind, Stream: stream} }
func use(kind program.Kind, stream uint8, reads, writes program.Set) program.Op {
	return program.Op{Kind: kind, Stream: stream, Reads: reads, Writes: writes}
}

// Some sets of blocks.
const (
	noBlock program.Set = 0
	a       program.Set = 1 << 0
	b       program.Set = 1 << 1
	c       program.Set = 1 << 2
	both                = a | b
	newest  program.Set = 1 << latest
)

// bases are the allocations that set-ups begin with.
var bases = []program.Program{
	{alloc(streamX, 0)},
	{alloc(streamX, 0), alloc(streamX, 1)},
	{alloc(streamX, 0), alloc(streamY, 1)},
}

// adoptedBases are those with an adopted stream.
var adoptedBases = []program.Program{
	{alloc(Adopted, 0)},
	{alloc(Adopted, 0), alloc(streamX, 1)},
	{alloc(streamX, 0), use(program.Launch, Adopted, noBlock, a)},
}

// givenUp are set-ups with a stream that was given up.
var givenUp = []program.Program{
	{alloc(Adopted, 0), on(program.Release, Adopted)},
	{alloc(Adopted, 0), alloc(Adopted, 1), use(program.Launch, streamY, a, noBlock), free(1), on(program.Release, Adopted)},
	{alloc(Adopted, 0), alloc(Adopted, 1), use(program.Open, streamX, a, noBlock), free(0), on(program.Release, Adopted)},
}

// tails are what may come behind a base.
func tails(streams ...uint8) (list []program.Program) {
	list = append(list, nil, program.Program{free(0)})
	for _, s := range streams {
		for _, kind := range []program.Kind{program.Launch, program.Open} {
			list = append(list, program.Program{use(kind, s, a, noBlock)}, program.Program{use(kind, s, noBlock, a)})
		}
		list = append(list, program.Program{use(program.Open, s, a, noBlock), free(0)})
	}
	return list
}

func setups(bases, tails []program.Program) (list []program.Program) {
	for _, base := range bases {
		for _, tail := range tails {
			list = append(list, slices.Concat(base, tail))
		}
	}
	return list
}

// Families are what is run: in less than a minute on two cores by default, in
// an hour or more if all are asked for.
func Families(all bool) []*Family {
	pairs := &Family{Name: "pairs", Shape: []int{1, 1}, Preemptions: 2, letters: commonLetters,
		setups: append(setups(bases[:1], tails(streamX, streamY)), setups(bases[1:], tails(streamY))...)}
	adopted := &Family{Name: "adopted", Shape: []int{1, 1}, Preemptions: 2, setups: append(setups(adoptedBases[:1], tails()), givenUp...), letters: commonLetters}
	longer := &Family{Name: "longer", Shape: []int{2, 1}, Preemptions: 2, setups: setups(bases[1:2], tails()), letters: someLetters}
	longest := &Family{Name: "longest", Shape: []int{2, 2}, Preemptions: 1, setups: setups(bases[1:2], tails()), letters: someLetters}
	recycling := &Family{Name: "recycling", Shape: []int{3, 1}, Preemptions: 1, setups: bases[:1], letters: recyclingLetters}
	triples := &Family{Name: "triples", Shape: []int{1, 1, 1}, Preemptions: 1, setups: setups(bases, tails()), letters: someLetters}
	small := &Family{Name: "small", Shape: []int{1, 1}, Preemptions: 3, setups: setups(bases[:1], tails()), letters: someLetters}
	if all {
		every := setups(bases, tails(streamX, streamY))
		pairs.letters, pairs.setups, small.setups = everyLetter, every, every
		adopted.letters, adopted.setups = everyLetter, append(setups(adoptedBases, tails(Adopted)), givenUp...)
		longer.setups, recycling.Preemptions = every, 2
		longest.setups, longest.Preemptions = setups(bases, tails()), 2
		triples.Preemptions = 2
	}
	return append([]*Family{pairs, adopted, longer, longest, recycling, triples, small}, poolFamilies(all)...)
}
