package fenceproof

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/fencepost-gpu/fencepost/dev/proof"
	"github.com/fencepost-gpu/fencepost/dev/proof/program"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// large is the bound of programs that are drawn.
var large = program.Bounds{Streams: 6, Blocks: 24, Ops: 60, Kinds: append([]program.Kind{program.Reap, program.Faulty, program.FaultyRecord}, everyKind...)}

func openRunner(t testing.TB, streams int) *proof.Runner {
	t.Helper()
	r, err := proof.NewRunner(proof.Config{Streams: streams})
	must.Do(t, err)
	t.Cleanup(func() {
		if err := r.Close(); err != nil && !t.Failed() {
			t.Error(err)
		}
	})
	return r
}

// TestRandomProgramsKeepTheirOrder runs larger programs than the exhaustive
// test can, under random schedules. What fails is made smaller by rapid.
func TestRandomProgramsKeepTheirOrder(t *testing.T) {
	waits, excused := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		draw := func(n int) int { return rapid.IntRange(0, n-1).Draw(rt, "choice") }
		bound := large
		if draw(3) == 2 {
			bound.Kinds = append([]program.Kind{program.GiveUp}, large.Kinds...)
		}
		bound.Ops = 1 + draw(large.Ops)
		p := program.Draw(bound, draw)
		s := proof.DrawSchedule(p, 1+draw(4), draw)
		r, err := proof.NewRunner(proof.Config{Streams: bound.Streams}) // what failed before must not matter
		must.Do(rt, err)
		v, err := r.Check(p, s)
		must.Do(rt, err)
		must.Do(rt, r.Close())
		waits += v.Waits
		excused += v.Excused
	})
	t.Logf("%d waits, %d orders and waits excused", waits, excused)
}

// TestLargeProgramsKeepTheirOrder is the same with programs that are dense.
func TestLargeProgramsKeepTheirOrder(t *testing.T) { tryRandomly(t, large, 20_000) }

// TestManyStreamsKeepTheirOrder is the same on more streams than clocks have room
// for at first.
func TestManyStreamsKeepTheirOrder(t *testing.T) {
	many := large
	many.Streams = 24
	tryRandomly(t, many, 4000)
}

func tryRandomly(t *testing.T, bound program.Bounds, programs int) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	r := openRunner(t, bound.Streams)
	var total proof.Total
	if raceDetector {
		programs /= 20
	}
	if testing.Short() {
		programs /= 5
	}
	for range programs {
		p := program.Random(rng, bound)
		s := proof.RandomSchedule(rng, p, 1+rng.IntN(4))
		v := must.Get(r.Check(p, s))(t)
		total.Programs++
		total.Count(v)
	}
	t.Logf("%v, %d waits", total, total.Waits)
}
