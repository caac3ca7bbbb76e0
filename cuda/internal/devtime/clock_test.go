package devtime

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// clocks are a host's and a device's that run apart. The device answers in single precision, as CUDA does.
type clocks struct {
	*drivertest.Null
	host    float64 // nanoseconds
	ahead   float64 // what the device's shows beyond the host's
	rate    float64 // and gains in a second
	answers func() float64
	// comes is at which part of an answer's time the device comes to the record.
	comes  func() float64
	at     map[driver.Event]float64
	err    error
	silent bool
}

func (d *clocks) EventQuery(driver.Event) (bool, error) { return !d.silent, d.err }

func (d *clocks) pass(ns float64) {
	d.host += ns
	d.ahead += ns * d.rate
}

func (d *clocks) now() monotime.Instant { return monotime.Instant(d.host) }

func (d *clocks) EventRecord(e driver.Event, _ driver.Stream) error {
	wait := d.answers()
	part := d.comes()
	d.pass(wait * part)
	d.at[e] = d.host + d.ahead
	d.pass(wait * (1 - part))
	return d.err
}

func (d *clocks) EventElapsed(from, to driver.Event) (time.Duration, error) {
	ms := float32((d.at[to] - d.at[from]) / 1e6)
	return time.Duration(float64(ms) * 1e6), d.err
}

func newClocks(rate float64) (*clocks, *Clock) {
	d := &clocks{Null: &drivertest.Null{}, rate: rate, at: map[driver.Event]float64{}, answers: func() float64 { return 12_000 }, comes: func() float64 { return 1. / 3 }}
	c := New(d)
	c.now = d.now
	return d, c
}

// An hour of a device whose clock gains some 40 µs a second, asked at random, is placed within what
// the clock says, and within 5 µs, though the readings are 9 µs apart and more, and the record lies before their middle. If
// it lies anywhere, and the rate changes with each base as much as is allowed for, what the clock says still holds.
func TestAnHourIsPlacedWithinTheBound(t *testing.T) {
	t.Run("steady", func(t *testing.T) { hour(t, 0, [2]float64{0.2, 0.5}, 5*time.Microsecond) })
	t.Run("wandering", func(t *testing.T) { hour(t, wander, [2]float64{0, 1}, 40*time.Microsecond) })
}

func hour(t *testing.T, wanders float64, between [2]float64, within time.Duration) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	d, c := newClocks(40e-6)
	d.answers = func() float64 { return 9_000 + rng.ExpFloat64()*6_000 }
	d.comes = func() float64 { return between[0] + rng.Float64()*(between[1]-between[0]) }
	event := driver.Event(1 << 40)
	worst := time.Duration(0)
	for d.host < 3600e9 {
		if c.Due() {
			d.rate = 40e-6 + rng.Float64()*wanders
			steady, err := c.Renew()
			must.Do(t, err)
			if !steady {
				t.Fatalf("after %v the clocks are called unsteady", time.Duration(d.host))
			}
		}
		truth := d.host
		d.at[event] = d.host + d.ahead
		d.pass(rng.Float64() * float64(Interval))
		at, bound, err := c.At(event)
		must.Do(t, err)
		off := (time.Duration(at) - time.Duration(truth)).Abs()
		if off > bound {
			t.Fatalf("after %v an event is placed %v off, and the bound is %v", time.Duration(d.host), off, bound)
		}
		switch {
		case time.Duration(d.host) > Reach:
			worst = max(worst, off)
		case time.Duration(truth) > Interval/5 && off > 40*time.Microsecond: // the rate is known by two bases near each other
			t.Fatalf("after %v an event is placed %v off", time.Duration(d.host), off)
		}
	}
	t.Logf("an event was placed %v off", worst)
	if worst > within {
		t.Error("that is too far")
	}
}

func TestASleepOfTheMachineIsSeen(t *testing.T) {
	d, c := newClocks(-30e-6)
	renew := func(want bool) {
		t.Helper()
		steady, err := c.Renew()
		must.Do(t, err)
		if steady != want {
			t.Errorf("steady is %v, want %v", steady, want)
		}
	}
	renew(true)
	d.pass(float64(Interval))
	renew(true)
	d.pass(float64(Interval))
	d.ahead += 3e6 // the device went on for 3 ms while the host stood still
	renew(false)
	d.pass(float64(time.Hour)) // idle: nothing is renewed
	renew(true)
}

func TestARecordOfLongAgoIsNotPlaced(t *testing.T) {
	d, c := newClocks(0)
	_, err := c.Renew()
	must.Do(t, err)
	event := driver.Event(1 << 40)
	d.at[event] = d.host
	d.pass(float64(Reach) + 1e6)
	_, err = c.Renew()
	must.Do(t, err)
	if _, _, err = c.At(event); !errors.Is(err, ErrFar) {
		t.Errorf("a record of more than %v ago gives %v", Reach, err)
	}
}

// Whichever two calls of the driver fail, of renewals and ends in any order: the next renewal makes
// what is missing, and nothing is left on the device.
func TestAClockWorksAgainAfterAnyTwoFaults(t *testing.T) {
	for _, ends := range [][]int{{}, {1}, {0, 1, 2}} { // behind which renewals the clock is closed
		for first := uint64(1); ; first++ {
			met := 0
			for second := uint64(1); second == 1 || met == 2; second++ {
				d, _ := newClocks(0)
				f := drivertest.NewFaults(d)
				c := New(f)
				c.now = d.now
				f.FailCall(first, driver.OutOfMemory)
				f.FailCall(first+second, driver.InvalidValue)
				for i := range 3 {
					_, _ = c.Renew()
					if slices.Contains(ends, i) {
						_ = c.Close()
					}
				}
				met = int(failures(f))
				f.Clear()
				for range 2 { // the second compares
					if steady, err := c.Renew(); !steady || err != nil {
						t.Fatalf("calls %d and %d fail, closed behind %v: then the clock says %v, %v", first, first+second, ends, steady,
							err)
					}
				}
				must.Do(t, c.Close())
				for made, destroyed := range map[drivertest.Method]drivertest.Method{drivertest.TimingEventCreate: drivertest.EventDestroy, drivertest.StreamCreate: drivertest.StreamDestroy} {
					if n, gone := f.Calls(made)-f.Failed(made), f.Calls(destroyed)-f.Failed(destroyed); n != gone {
						t.Fatalf("calls %d and %d fail, closed behind %v: %s made %d, %s took back %d", first, first+second, ends, made,
							n, destroyed, gone)
					}
				}
			}
			if met == 0 {
				break
			}
		}
	}
}

func failures(f *drivertest.Faults) (n uint64) {
	for _, m := range drivertest.Methods() {
		n += f.Failed(m)
	}
	return n
}

// A reap that renews the clock must not hang with a device that is stuck, or whose queue is full of others' work.
func TestADeviceThatDoesNotAnswerIsNotWaitedFor(t *testing.T) {
	d, c := newClocks(0)
	d.silent = true
	if _, err := c.Renew(); !errors.Is(err, ErrBusy) {
		t.Fatalf("a renewal without an answer gives %v", err)
	}
	if !c.Due() {
		t.Error("it counts as one")
	}
	d.silent = false
	_, err := c.Renew()
	must.Do(t, err)
	if c.Due() {
		t.Error("after a renewal another is due")
	}
}
