package sim

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// step is one step of a random program: an access of a block on a stream, or
// a fence between two streams.
type step struct {
	fence, write bool
	from, stream int
	block        int
}

const (
	verdictStreams = 3
	verdictBlocks  = 2
)

func drawSteps(r *rapid.T) []step {
	return rapid.SliceOfN(rapid.Custom(func(r *rapid.T) step {
		return step{
			fence:  rapid.Bool().Draw(r, "fence"),
			write:  rapid.Bool().Draw(r, "write"),
			from:   rapid.IntRange(0, verdictStreams-1).Draw(r, "from"),
			stream: rapid.IntRange(0, verdictStreams-1).Draw(r, "stream"),
			block:  rapid.IntRange(0, verdictBlocks-1).Draw(r, "block"),
		}
	}), 1, 24).Draw(r, "program")
}

// races says, by sets of predecessors and nothing cleverer, whether two
// conflicting accesses of the program have no order.
func races(steps []step) bool {
	known := make([]map[int]bool, verdictStreams) // by stream: what its next step is after
	for i := range known {
		known[i] = map[int]bool{}
	}
	for i, s := range steps {
		if s.fence {
			for j := range known[s.from] {
				known[s.stream][j] = true
			}
			continue
		}
		for j, old := range steps[:i] {
			if !old.fence && old.block == s.block && (old.write || s.write) && !known[s.stream][j] {
				return true
			}
		}
		known[s.stream][i] = true
	}
	return false
}

// runSteps runs the program and returns what the oracle found.
func runSteps(t *testing.T, steps []step, s Schedule) []Finding {
	d, err := Open(Config{Bytes: 16 << 20, Schedule: s})
	must(t, err)
	defer func() { must(t, d.Close()) }()
	p := newProgram(t, d)
	var streams []driver.Stream
	var blocks []uint64
	for range verdictStreams {
		streams = append(streams, p.stream())
	}
	for range verdictBlocks {
		blocks = append(blocks, p.alloc(512, streams[0]))
	}
	must(t, d.Synchronize())
	for _, s := range steps {
		switch {
		case s.fence:
			p.order(streams[s.from], streams[s.stream])
		case s.write:
			p.launch("write", blocks[s.block], 512, streams[s.stream])
		default:
			p.launch("read", blocks[s.block], 512, streams[s.stream])
		}
	}
	must(t, d.Synchronize())
	return d.Findings()
}

// The oracle's verdict is right, and the same under every schedule.
func TestVerdictDoesNotDependOnTheSchedule(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		steps := drawSteps(r)
		want := races(steps)
		for _, s := range []Schedule{FreeRunning(), Seeded(rapid.Uint64().Draw(r, "seed")), Seeded(7)} {
			if found := runSteps(t, steps, s); (len(found) > 0) != want {
				r.Fatalf("%s: found %v, the program has a race: %v", s, found, want)
			}
		}
	})
}
