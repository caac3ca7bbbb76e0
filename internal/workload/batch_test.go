package workload_test

import (
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
	"github.com/fencepost-gpu/fencepost/internal/workload"
)

func newBatch(t *testing.T, s *teststack.Stack) (*workload.Workload, *workload.Batch) {
	t.Helper()
	w := must.Get(workload.New(s.Env(), workload.Config{Goroutines: 2, Iterations: 1, Rounds: 1, Rows: 300, Seed: 5}))(t)
	b := must.Get(w.Batch(t.Context()))(t)
	t.Cleanup(func() {
		expect.Success(t, b.Close())
	})
	return w, b
}

func TestABatchIsRightAndComparedOnce(t *testing.T) {
	w, b := newBatch(t, teststack.Open(t, teststack.Config{}))
	for range 2 {
		must.Do(t, b.Run(t.Context(), 3))
		expect.Success(t, b.Check())
	}
	if r := w.Result(); r.Checked != 2*2*4 || r.Wrong != 0 {
		t.Errorf("%+v; want 16 results, all right", r)
	}
	if err := b.Check(); err == nil {
		t.Error("results passed that were compared before")
	}
}

func TestABatchWithoutFencesIsWrong(t *testing.T) {
	s := teststack.Open(t, teststack.Config{Dirty: true, Sim: sim.Config{Schedule: sim.Seeded(1)}})
	_, b := newBatch(t, s)
	s.Sim.DropWaits(true)
	for range 50 {
		must.Do(t, b.Run(t.Context(), 1))
		if err := b.Check(); err != nil {
			if !strings.Contains(err.Error(), "of 8 results are wrong") {
				t.Error(err)
			}
			return
		}
	}
	t.Error("no wait reached the device and 50 runs were right")
}

// What a batch took before it failed is given back: the stack's end says so.
func TestABatchThatCannotBePreparedLeavesNothing(t *testing.T) {
	for k := uint64(1); ; k++ {
		var faults *drivertest.Faults
		s := teststack.Open(t, teststack.Config{Wrap: func(d driver.Driver) driver.Driver {
			faults = drivertest.NewFaults(d)
			return faults
		}})
		w, err := workload.New(s.Env(), workload.Config{Goroutines: 2, Iterations: 1, Rounds: 1, Rows: 300, Seed: 5})
		must.Do(t, err)
		faults.FailMethod(drivertest.HostAlloc, k, driver.OutOfMemory)
		b, err := w.Batch(t.Context())
		if err != nil {
			continue
		}
		if k == 1 {
			t.Error("no call was made to fail")
		}
		expect.Success(t, b.Close())
		return
	}
}
