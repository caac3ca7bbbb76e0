package sim

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// schedules are the clocks that tests run under.
var schedules = []Schedule{FreeRunning(), Seeded(1), Seeded(2)}

// open makes a small device that is closed with the test.
func open(t testing.TB, s Schedule) *Device {
	t.Helper()
	d, err := Open(Config{Bytes: 256 << 20, Schedule: s})
	must(t, err)
	t.Cleanup(func() { must(t, d.Close()) })
	return d
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// underEach runs a test under every schedule.
func underEach(t *testing.T, test func(t *testing.T, d *Device)) {
	for _, s := range most() {
		t.Run(s.String(), func(t *testing.T) { test(t, open(t, s)) })
	}
}

// most are all schedules, with -short one of each kind.
func most() []Schedule {
	if testing.Short() {
		return schedules[:2]
	}
	return schedules
}

func TestConformance(t *testing.T) { conforms(t, most()) }

// A device whose faults are watched, with its other events and waits, is a device.
func TestConformanceWhileFaultsAreWatched(t *testing.T) {
	conforms(t, most(), func(d *Device) error {
		return d.WatchFaults(func() bool { return false }, func(*driver.Launch, string) {})
	})
}

func conforms(t *testing.T, under []Schedule, prepare ...func(*Device) error) {
	t.Helper()
	for _, s := range under {
		t.Run(s.String(), func(t *testing.T) {
			drivertest.Conformance(t, func(t *testing.T) driver.Driver {
				d, err := Open(Config{Bytes: 256 << 20, Schedule: s})
				must(t, err)
				for _, f := range prepare {
					must(t, f(d))
				}
				t.Cleanup(func() {
					for _, f := range d.Findings() {
						t.Errorf("finding in a correct program: %v", f)
					}
				})
				return d
			})
		})
	}
}
