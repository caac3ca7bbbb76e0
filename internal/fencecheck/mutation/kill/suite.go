package main

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/fencepost-gpu/fencepost/internal/fencecheck"
	"github.com/fencepost-gpu/fencepost/internal/fencecheck/mutation"
	"github.com/fencepost-gpu/fencepost/internal/fencecheck/mutation/toggle"
	"github.com/fencepost-gpu/fencepost/internal/fencecheck/program"
)

var everyKind = []program.Kind{program.Launch, program.Free, program.Sync, program.Abort, program.Record, program.Reap, program.Faulty, program.FaultyRecord}

// The programs: all small ones, and larger ones from fixed seeds.
var (
	small = []fencecheck.Bound{
		{Bounds: program.Bounds{Streams: 3, Blocks: 2, Ops: 4, Kinds: []program.Kind{program.Launch, program.Free, program.Abort, program.Record}}, Goroutines: 2},
		{Bounds: program.Bounds{Streams: 3, Blocks: 2, Ops: 4, Kinds: []program.Kind{program.Launch, program.Free, program.Sync, program.Reap, program.Faulty}}, Goroutines: 2},
	}
	large = program.Bounds{Streams: 6, Blocks: program.MaxBlocks, Kinds: everyKind}
	// sizes are the numbers of blocks of the large ones, in turn.
	sizes = [...]int{2, 4, 10, program.MaxBlocks}
)

const (
	// As many large ones are run in advance, to see which sites they execute;
	// a mutant that survives those is tried on further ones.
	seeds, furtherSeeds = 1600, 6000
	fewestOps, mostOps  = 8, 60
	// Every other large one is a shorter one many times in a row: what comes
	// once there comes often.
	times, shorterOps, shorterBlocks = 10, 15, 4
	// fewest and most of a mutant's runs are kept that are small or large.
	keptSmall, keptLarge = 100, seeds
)

// trial is a program under a schedule.
type trial struct {
	streams  int
	program  program.Program
	schedule fencecheck.Schedule
}

// suite has, for each mutant, the trials that execute its site often enough.
type suite struct {
	reaching [][mutation.Executions]reaching
}

// reaching are trials by their size.
type reaching struct {
	small, large []*trial
	n            int
}

// newSuite runs all programs without a mutant, to see which sites each
// executes, and that all is well.
func newSuite() (*suite, error) {
	s := &suite{reaching: make([][mutation.Executions]reaching, len(mutation.Sites()))}
	for _, b := range small {
		if err := s.addAll(b); err != nil {
			return nil, err
		}
	}
	for seed := range uint64(seeds) {
		if err := s.add(largeTrial(seed), false); err != nil {
			return nil, fmt.Errorf("seed %d: %w", seed, err)
		}
	}
	return s, nil
}

// addAll adds all small programs under all schedules.
func (s *suite) addAll(b fencecheck.Bound) (err error) {
	b.Each(1, func(p program.Program) bool {
		fencecheck.EachSchedule(p, b.Goroutines, func(steps fencecheck.Schedule) bool {
			err = s.add(&trial{b.Streams, slices.Clone(p), slices.Clone(steps)}, true)
			return err == nil
		})
		return err == nil
	})
	return err
}

func largeTrial(seed uint64) *trial {
	rng := rand.New(rand.NewPCG(seed, 1))
	b := large
	b.Streams, b.Blocks = 2+rng.IntN(large.Streams-1), sizes[seed/2%uint64(len(sizes))]
	b.Ops = fewestOps + rng.IntN(mostOps-fewestOps+1)
	p := program.Random(rng, b)
	if seed%2 == 1 {
		b.Blocks, b.Ops = 1+rng.IntN(shorterBlocks), 3+rng.IntN(shorterOps-2)
		p = program.Random(rng, b).Repeat(times)
	}
	return &trial{b.Streams, p, fencecheck.RandomSchedule(rng, p, 2+rng.IntN(2))}
}

// add runs a trial without a mutant and notes it for the mutants that it may
// kill.
func (s *suite) add(t *trial, isSmall bool) error {
	if by, err := t.run(-1, 0); len(by) > 0 {
		return fmt.Errorf("without a mutant: %v: %w", by, err)
	}
	for site := range s.reaching {
		for k := range min(toggle.Executions(site), mutation.Executions) {
			s.reaching[site][k].add(t, isSmall)
		}
	}
	return nil
}

func (r *reaching) add(t *trial, isSmall bool) {
	r.n++
	switch {
	case isSmall && len(r.small) < keptSmall:
		r.small = append(r.small, t)
	case !isSmall && len(r.large) < keptLarge:
		r.large = append(r.large, t)
	}
}
