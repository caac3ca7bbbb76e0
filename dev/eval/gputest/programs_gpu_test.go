package gputest

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// firstSeed is of the first of some random programs; the others follow.
func firstSeed(t *testing.T) uint64 {
	t.Helper()
	seed := uint64(rand.Uint32())
	if text := os.Getenv(seedVariable); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		must(t, err)
	}
	t.Logf("first seed %d; %s repeats it", seed, seedVariable)
	return seed
}

// Random programs on streams that run far apart: every value is the one that
// the order of the program gives.
func TestRandomProgramsKeepTheirValues(t *testing.T) {
	gpu(t)
	seed := firstSeed(t)
	b, _ := delayedBench(t, seed)
	programs := uint64(scaled(200, 10))
	for i := range programs {
		if wrong := b.runProgram(seed + i); wrong != 0 {
			t.Fatalf("program with seed %d: %d words are wrong", seed+i, wrong)
		}
	}
	s := b.Stats()
	t.Logf("%d programs, %d launches, %d waits queued, %d elided", programs, s.Launches, s.WaitsQueued, s.WaitsElided)
}

// The same with every fence removed: the test above can fail.
func TestRandomProgramsLoseTheirValuesWithoutFences(t *testing.T) {
	provokes(t, "races, by dropping every wait")
	if !alone(t) {
		return
	}
	seed := firstSeed(t)
	b, faults := delayedBench(t, seed)
	wrong, spoilt := uint64(0), 0
	programs := uint64(scaled(20, 10))
	b.withoutFences(faults, func() {
		for i := range programs {
			n := b.runProgram(seed + i)
			if wrong += n; n > 0 {
				spoilt++
			}
		}
	})
	t.Logf("%d of %d programs were spoilt, %d words in all", spoilt, programs, wrong)
	if wrong == 0 {
		t.Errorf("no word is wrong although no stream waited")
	}
}
