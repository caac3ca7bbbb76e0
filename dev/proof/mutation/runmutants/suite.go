package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/fencepost-gpu/fencepost/dev/proof"
	"github.com/fencepost-gpu/fencepost/dev/proof/mutation/activemutant"
	"github.com/fencepost-gpu/fencepost/dev/proof/program"
)

var everyKind = []program.Kind{program.Launch, program.Free, program.Sync, program.Abort, program.Record, program.Reap, program.Faulty, program.FaultyRecord}

// isolatedKinds are what is done with blocks that have mappings of their own.
var isolatedKinds = []program.Kind{program.Launch, program.Free, program.Sync, program.Abort, program.Reap}

// poolKinds are what is done over the runtime's own pool.
var poolKinds = []program.Kind{program.Launch, program.Free, program.Sync, program.Abort, program.Record, program.Reap}

var withGivingUp = append([]program.Kind{program.GiveUp}, everyKind...)

// The programs: all small ones, and larger ones from fixed seeds.
var (
	small = []proof.Bound{
		ofFour(program.Launch, program.Free, program.Abort, program.Record),
		ofFour(program.Launch, program.Free, program.Sync, program.Reap),
		ofFour(program.Launch, program.Faulty, program.FaultyRecord),
	}
	// smallPool are run over the runtime's own pool.
	smallPool = proof.Bound{Bounds: program.Bounds{Streams: 3, Blocks: 3, Ops: 4, Kinds: poolKinds, Sizes: proof.PoolSizes, Single: true}, Goroutines: 2}
	large     = program.Bounds{Streams: 6, Blocks: program.MaxBlocks, Kinds: everyKind}
	// sizes are the numbers of blocks of the large ones, in turn.
	sizes = [...]int{2, 4, 10, program.MaxBlocks}
)

func ofFour(kinds ...program.Kind) proof.Bound {
	return proof.Bound{Bounds: program.Bounds{Streams: 3, Blocks: 2, Ops: 4, Kinds: kinds}, Goroutines: 2}
}

// mostSmall is how many small ones are tried on the first execution of
// a site, and on any other.
var mostSmall = [...]int{700, 100}

// draws are the larger programs, of which as many are run in advance as there are seeds, to see which
// sites they execute. A mutant that survives those is tried on further ones, where there are others.
var draws = []struct {
	name    string
	seeds   uint64
	further bool
	draw    func(seed uint64) *trial
}{
	{"driver's pool", 1600, true, largeTrial},
	{"isolated", 400, false, isolatedTrial},
	{"own pool", 3200, true, poolTrial},
	{"kept blocks", 800, true, keptTrial},
}

const (
	furtherSeeds       = 6000
	fewestOps, mostOps = 8, 60
	// Every other large one is a shorter one many times in a row: what comes
	// once there comes often.
	times, shortOps, shortBlocks = 12, 15, 2
	// mostLarge of those that execute a site are tried.
	mostLarge = 400
)

// trial is a program under a schedule.
type trial struct {
	streams  int
	program  program.Program
	schedule proof.Schedule
	over     proof.Memory
	// executions are how often it executes each site without a mutant.
	executions []uint8
}

// suite has the trials that may kill mutants, of which each knows how often it executes which site.
type suite struct {
	small, large []*trial
}

// newSuite runs all programs without a mutant, to see which sites each
// executes, and that all is well.
func newSuite() (*suite, error) {
	s := &suite{}
	for _, b := range small {
		if err := s.addAll(b, proof.DriverPool); err != nil {
			return nil, err
		}
	}
	for _, over := range proof.OwnPools {
		if err := s.addAll(smallPool, over); err != nil {
			return nil, err
		}
	}
	for _, d := range draws {
		for seed := range d.seeds {
			if err := s.add(d.draw(seed), false); err != nil {
				return nil, fmt.Errorf("%s, seed %d: %w", d.name, seed, err)
			}
		}
	}
	return s, nil
}

// addAll adds all small programs under all schedules.
func (s *suite) addAll(b proof.Bound, over proof.Memory) (err error) {
	b.Each(1, func(p program.Program) bool {
		proof.Explorer{Goroutines: b.Goroutines}.Each(p, func(steps proof.Schedule) bool {
			err = s.add(&trial{b.Streams, slices.Clone(p), slices.Clone(steps), over, nil}, true)
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
	if seed/2%3 == 0 {
		b.Kinds = withGivingUp
	}
	b.Ops = fewestOps + rng.IntN(mostOps-fewestOps+1)
	p := program.Draw(b, rng.IntN)
	if seed%2 == 1 {
		b.Blocks, b.Ops = 1+rng.IntN(shortBlocks), 3+rng.IntN(shortOps-2)
		p = program.Draw(b, rng.IntN).Repeat(times)
	}
	return &trial{b.Streams, p, proof.DrawSchedule(p, 2+rng.IntN(2), rng.IntN), proof.DriverPool, nil}
}

// keptTrial has blocks of one size on two streams, which keep them for the next ones.
func keptTrial(seed uint64) *trial {
	rng := rand.New(rand.NewPCG(seed, 7))
	b := program.Bounds{Streams: 2, Blocks: program.MaxBlocks, Ops: fewestOps + rng.IntN(mostOps-fewestOps+1),
		Kinds: []program.Kind{program.Launch, program.Free, program.Abort, program.Record}, Sizes: proof.PoolSizes[:1]}
	p := program.Draw(b, rng.IntN)
	return &trial{b.Streams, p, proof.DrawSchedule(p, 2, rng.IntN), proof.OwnPoolQuickly, nil}
}

func isolatedTrial(seed uint64) *trial {
	rng := rand.New(rand.NewPCG(seed, 3))
	b := program.Bounds{Streams: 2 + rng.IntN(3), Blocks: sizes[seed%uint64(len(sizes))], Ops: fewestOps + rng.IntN(mostOps-fewestOps+1), Kinds: isolatedKinds}
	p := program.Draw(b, rng.IntN)
	return &trial{b.Streams, p, proof.DrawSchedule(p, 2+rng.IntN(2), rng.IntN), proof.Isolated, nil}
}

func poolTrial(seed uint64) *trial {
	rng := rand.New(rand.NewPCG(seed, 5))
	b := program.Bounds{Streams: 2 + rng.IntN(2), Blocks: 12, Ops: 8 + rng.IntN(25), Kinds: poolKinds, Sizes: proof.PoolSizes, Single: seed%2 == 0}
	p := program.Draw(b, rng.IntN)
	return &trial{b.Streams, p, proof.DrawSchedule(p, 1+rng.IntN(2), rng.IntN), proof.OwnPools[seed/2%2], nil}
}

// add runs a trial without a mutant and notes how often it executes each site.
func (s *suite) add(t *trial, isSmall bool) error {
	if by, err := t.run(-1, 0); len(by) > 0 {
		return fmt.Errorf("without a mutant: %v: %w", by, err)
	}
	t.executions = make([]uint8, activemutant.Sites())
	for site := range t.executions {
		t.executions[site] = uint8(min(activemutant.Executions(site), math.MaxUint8))
	}
	if isSmall {
		s.small = append(s.small, t)
	} else {
		s.large = append(s.large, t)
	}
	return nil
}

// reaching are trials that execute a site k times, at most so many.
func reaching(of []*trial, site, k, most int) (some []*trial) {
	for _, t := range of {
		if int(t.executions[site]) < k {
			continue
		}
		if some = append(some, t); len(some) == most {
			break
		}
	}
	return some
}
