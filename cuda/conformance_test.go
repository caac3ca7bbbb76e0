package cuda_test

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
)

const conformanceBytes = 4 << 30

func TestAsyncResourceConforms(t *testing.T) {
	schedules := []sim.Schedule{sim.FreeRunning(), sim.Seeded(1), sim.Seeded(2), sim.Seeded(3)}
	if testing.Short() {
		schedules = schedules[:2]
	}
	for _, schedule := range schedules {
		t.Run(schedule.String(), func(t *testing.T) {
			coretest.Run(t, func(t *testing.T) coretest.Subject { return asyncSubject(t, schedule) })
		})
	}
}

func TestPoolResourceConforms(t *testing.T) {
	schedules := []sim.Schedule{sim.FreeRunning(), sim.Seeded(1), sim.Seeded(2), sim.Seeded(3)}
	if testing.Short() {
		schedules = schedules[:2]
	}
	for _, schedule := range schedules {
		t.Run(schedule.String(), func(t *testing.T) {
			coretest.Run(t, func(t *testing.T) coretest.Subject { return poolSubject(t, schedule) })
		})
	}
}

// poolSubject has no free that fails by itself: its pool calls no driver for one.
func poolSubject(t *testing.T, schedule sim.Schedule) coretest.Subject {
	t.Helper()
	stack := teststack.Open(t, teststack.Config{
		Sim:     sim.Config{Bytes: conformanceBytes, Schedule: schedule},
		Streams: 64,
		Pool:    &cuda.PoolConfig{},
	})
	return coretest.Subject{
		Resource: stack.Pool,
		Features: core.UseTracking | core.StreamOrdered | core.Isolation | core.OrderedRelease,
		Streams:  func(t testing.TB) core.StreamID { return stack.Lease(t, "conformance").ID() },
		Device:   stack.Device(),
		Capacity: conformanceBytes,
	}
}

func TestDirectResourceConforms(t *testing.T) {
	coretest.Run(t, func(t *testing.T) coretest.Subject {
		s, faults := asyncOver(t, sim.FreeRunning())
		s.Resource, s.Features = cuda.NewDirectResource(faults), 0
		s.FailNextFree = func() { faults.FailMethod(drivertest.MemFree, 1, driver.InvalidValue) }
		return s
	})
}

func asyncSubject(t *testing.T, schedule sim.Schedule) coretest.Subject {
	s, _ := asyncOver(t, schedule)
	return s
}

func asyncOver(t *testing.T, schedule sim.Schedule) (coretest.Subject, *drivertest.Faults) {
	t.Helper()
	var faults *drivertest.Faults
	stack := teststack.Open(t, teststack.Config{
		Sim:     sim.Config{Bytes: conformanceBytes, Schedule: schedule},
		Streams: 64,
		Wrap:    func(d driver.Driver) driver.Driver { faults = drivertest.NewFaults(d); return faults },
	})
	return coretest.Subject{
		Resource: stack.Async,
		Features: core.UseTracking | core.StreamOrdered | core.Isolation,
		Streams:  func(t testing.TB) core.StreamID { return stack.Lease(t, "conformance").ID() },
		Device:   stack.Device(),
		Capacity: conformanceBytes,
		FailNextFree: func() {
			faults.FailMethod(drivertest.MemFreeAsync, 1, driver.InvalidValue)
		},
	}, faults
}
