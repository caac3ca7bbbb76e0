package budget

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// Without a guard, too, what lacks only memory that the device has yet to pass waits for that, if the budget is patient.
func TestAPatientBudgetWaitsForTheDevice(t *testing.T) {
	for name, ask := range map[string]func(r *Resource) error{
		"a request": func(r *Resource) error {
			_, err := r.Allocate(context.Background(), core.Request{Bytes: 80, Stream: 2})
			return err
		},
		"a reservation": func(r *Resource) error {
			_, err := r.Reserve(context.Background(), 80, "claim")
			return err
		},
	} {
		for _, patience := range []time.Duration{0, time.Minute, time.Millisecond} {
			t.Run(name+"/"+patience.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					fake := coretest.NewFake(0)
					r := newBudget(t, fake, Config{Limit: 100, Patience: patience})
					b := mustAllocate(t, r, core.Request{Bytes: 60, Stream: 1})
					must.Get(r.Deallocate(context.Background(), b.ID))(t)
					began := time.Now()
					time.AfterFunc(time.Second, fake.Pass)
					err := ask(r)
					took, waits := time.Since(began), r.Stats().MemoryWaits
					short, refused := errors.AsType[*core.OutOfBudgetError](err)
					switch {
					case patience == time.Minute && (err != nil || took < time.Second || waits != 1):
						t.Errorf("%v after %v and %d waits", err, took, waits)
					case patience == time.Millisecond && (!refused || took < patience || short.Wait.For < patience || waits != 1):
						t.Errorf("%v after %v and %d waits", err, took, waits)
					case patience == 0 && (!refused || took > 0 || waits > 0):
						t.Errorf("%v after %v and %d waits", err, took, waits)
					}
				})
			})
		}
	}
}
