package admission_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/fencepost-gpu/fencepost/dev/proof/admission"
)

// jobs are small and large ones, one that is never sure of itself, and one that asks for nothing.
var jobs = []admission.Job{
	{Least: 1, Wants: 1, Uses: []uint64{0, 2}},
	{Least: 1, Wants: 99, Learns: 4, Uses: []uint64{3}, Settles: []uint64{1}}, // it runs alone, until it has learned
	{Least: 2, Wants: 3, Uses: []uint64{0, 4}, Settles: []uint64{2}},
	{Least: 0, Wants: 0, Uses: []uint64{1, 5}},
	{Least: 4, Wants: 4, Uses: []uint64{1, 6}, Settles: []uint64{3}},
	{Least: 2, Wants: 2, Uses: []uint64{0, 3}, Settles: []uint64{1}},
	{Least: 1, Wants: 5, Uses: []uint64{2}, Settles: []uint64{2}},
	{Least: 3, Wants: 3, Uses: []uint64{4}},
}

// TestNoStateOfTheQueueIsADeadlock explores everything that jobs can do to the queue. The whole
// bounds take four minutes.
func TestNoStateOfTheQueueIsADeadlock(t *testing.T) {
	const small = 5
	whole, fewest := 6, 200_000
	if !testing.Short() {
		whole, fewest = len(jobs), 10_000_000
	}
	guessing := slices.Clone(jobs[:small])
	guessing[0].Learns, guessing[3].Learns = 3, 2 // guesses, which grow when a job of the name uses more
	for _, b := range []struct {
		jobs           []admission.Job
		passes, fewest int
	}{
		{jobs[:small], 0, 10_000}, {jobs[:small], 1, 10_000}, {jobs[:small], 3, 10_000}, {guessing, 2, 50_000},
		{jobs[:whole], 2, fewest},
	} {
		got, err := admission.Explore(admission.Bounds{Jobs: b.jobs, Limits: []uint64{8, 5, 3, 0}, Passes: b.passes})
		fmt.Printf("admission, %d jobs, %d may pass: %+v\n", len(b.jobs), b.passes, got)
		if err != nil {
			t.Fatal(err)
		}
		if got.States < b.fewest || got.Refused == 0 || got.Short == 0 || got.GaveUp == 0 || got.Waiting < len(b.jobs)-1 ||
			(got.Passed > 0) != (b.passes > 0) {
			t.Errorf("the exploration has become smaller")
		}
	}
}
