package rotated_test

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/telemetry/internal/rotated"
)

func TestAWorkerDoesItsJobsInOrderAndUrgentOnesFirst(t *testing.T) {
	w, started, proceed := &rotated.Worker{}, make(chan struct{}), make(chan struct{})
	var done []int
	w.Do(func() { close(started); <-proceed }, math.MaxInt)
	<-started // so all others wait
	job := func(n int) func() { return func() { done = append(done, n) } }
	queued := []bool{w.Do(job(1), 2), w.Do(job(2), 2), w.Do(job(3), 2), w.DoFirst(job(0))}
	if want := []bool{true, true, false, true}; !slices.Equal(queued, want) {
		t.Errorf("queued: %v, want %v", queued, want)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	expect.Error(t, w.Close(ended), context.Canceled, "Close of a busy worker")
	close(proceed)
	if err := w.Close(t.Context()); err != nil || !slices.Equal(done, []int{0, 1, 2}) {
		t.Errorf("%v, done: %v", err, done)
	}
	if w.Do(job(4), math.MaxInt) || w.DoFirst(job(5)) || w.Close(ended) != nil {
		t.Error("a closed worker takes a job, or does not say that it has ended")
	}
}
