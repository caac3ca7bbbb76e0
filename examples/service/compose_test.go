package main

import (
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/examples/service/internal/device"
)

// shipped is the first text of docker-compose.yml that the expression's group
// takes: the services that are always there come first.
func shipped(t *testing.T, expression string) string {
	t.Helper()
	text, err := os.ReadFile("../../docker-compose.yml")
	must(t, err)
	found := regexp.MustCompile(expression).FindSubmatch(text)
	if found == nil {
		t.Fatalf("docker-compose.yml has nothing like %s", expression)
	}
	return string(found[1])
}

// Nobody is refused, whatever the machine's speed: the budget has room for the
// largest request on every turn, and for the frees of as many before them that the
// device has not passed. The guard takes less than a hundredth.
func TestTheShippedBudgetHasRoomForTheShippedLoad(t *testing.T) {
	budget, err := fencepost.ParseBytes(shipped(t, `FENCEPOST_BUDGET: (\S+)`))
	must(t, err)
	rows, err := strconv.Atoi(shipped(t, `"-rows=([0-9]+)"`))
	must(t, err)
	join := device.JoinBytes(device.Tables{Left: make([]uint32, rows/2), RightKeys: make([]uint32, (rows+1)/2)})
	r := start(t)
	turns := uint64(r.engine.MaxJobs())
	r.stop()
	must(t, <-r.ended)
	must(t, r.close())
	if most := 2 * turns * max(device.SortBytes(rows), join); budget-budget/100 < most {
		t.Errorf("%d turns of %d rows take %d bytes, and the budget has %d", turns, rows, most, budget)
	}
}
