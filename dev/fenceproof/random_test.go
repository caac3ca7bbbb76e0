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
func TestRandomProgramsKeepTheirOrder(t *testing.T) { rapid.Check(t, keepsOrder) }

// FuzzFences is the same with the choices that the fuzzer's bytes stand for.
func FuzzFences(f *testing.F) {
	rng := rand.NewChaCha8([32]byte{1})
	for range 20 {
		choices := make([]byte, 1<<16)
		_, _ = rng.Read(choices)
		f.Add(choices)
	}
	f.Fuzz(rapid.MakeFuzz(keepsOrder))
}

// keepsOrder draws a program and a schedule, and demands that nothing is wrong.
func keepsOrder(t *rapid.T) {
	draw := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "choice") }
	bound := large
	if draw(3) == 2 {
		bound.Kinds = append([]program.Kind{program.GiveUp}, large.Kinds...)
	}
	bound.Ops = 1 + draw(large.Ops)
	p := program.Draw(bound, draw)
	s := proof.DrawSchedule(p, 1+draw(4), draw)
	if _, err := proof.CheckOnce(proof.Config{Streams: bound.Streams}, p, s); err != nil { // what failed before must not matter
		t.Fatal(err)
	}
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
		p := program.Draw(bound, rng.IntN)
		s := proof.DrawSchedule(p, 1+rng.IntN(4), rng.IntN)
		v := must.Get(r.Check(p, s))(t)
		total.Programs++
		total.Count(v)
	}
	t.Logf("%v, %d waits", total, total.Waits)
}
