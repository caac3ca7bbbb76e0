package shown_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
)

// Jobs that wait for memory and names that are being learned are in the live view and among the
// notes of health, by Go and by both probes. Neither makes the runtime unwell.
func TestWaitingAndLearningAreShown(t *testing.T) {
	heard := make(chan core.Health, 100)
	rt := e2e.Open(t, fencepost.Config{Budget: 64 << 20, Guard: "off", OnHealth: func(h core.Health) { heard <- h }})
	h := e2e.HandlerOf(t, fencepost.HandlerConfig{}, rt)
	e2e.Succeed(t, "nothing is noted at first", notes(rt, h, 0, 0))

	goOn := make(chan struct{})
	var jobs sync.WaitGroup
	for i := range 10 { // seven eighths are given as guesses at most
		jobs.Go(func() {
			e2e.Succeed(t, "a job", rt.Do(context.Background(), fmt.Sprint("cold ", i), func(*fencepost.Job) error {
				<-goOn
				return nil
			}, fencepost.Admit()))
		})
	}
	until(t, func() error {
		if rt.Learning() != 10 || rt.Waiting() == 0 {
			return fmt.Errorf("%d are learned, %d wait", rt.Learning(), rt.Waiting())
		}
		return notes(rt, h, rt.Waiting(), 10)
	})
	if state := rt.Health(); !state.OK || state.State != names.HealthOK || state.Reason != "" || len(state.Signs) != 0 {
		t.Errorf("jobs wait, and the health is %+v", state)
	}
	e2e.Probes(t, rt, http.StatusOK, http.StatusOK, names.HealthOK)
	close(goOn)
	jobs.Wait()
	until(t, func() error { return notes(rt, h, 0, 0) })
	if n := len(heard); n > 1 { // the first says that the runtime is open
		t.Errorf("%d changes of health were told", n)
	}
}

// notes is nil if every view says that so many jobs wait and so many are being learned.
func notes(rt *fencepost.Runtime, h http.Handler, waiting, learning int) error {
	var state struct {
		Device struct {
			Jobs   struct{ Waiting, Learning int }
			Health struct{ Notes []core.HealthSign }
		}
	}
	var alive, ready fencepost.HealthReport
	for path, to := range map[string]any{"/debug/gpumem/state": &state, "/healthz": &alive, "/readyz": &ready} {
		if err := json.Unmarshal(e2e.Request(h, http.MethodGet, path, "").Body.Bytes(), to); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	var errs []error
	if j := state.Device.Jobs; j.Waiting != waiting || j.Learning != learning {
		errs = append(errs, fmt.Errorf("the live view has %+v, want %d and %d", j, waiting, learning))
	}
	for where, list := range map[string][]core.HealthSign{"Go": rt.Health().Notes, "report": rt.HealthReport().Notes,
		"live view": state.Device.Health.Notes, "healthz": alive.Notes, "readyz": ready.Notes} {
		noted := map[string]bool{}
		for _, n := range list {
			noted[n.Reason] = n.Text != "" && !n.Since.IsZero()
		}
		if noted[names.HealthNoteWaiting] != (waiting > 0) || noted[names.HealthNoteLearning] != (learning > 0) {
			errs = append(errs, fmt.Errorf("%s has the notes %+v", where, list))
		}
	}
	return errors.Join(errs...)
}

// until waits until a condition holds.
func until(t *testing.T, holds func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if err = holds(); err == nil {
			return
		}
	}
	t.Fatal(err)
}
