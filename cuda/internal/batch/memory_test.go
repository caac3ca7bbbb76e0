package batch

import (
	"context"
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/deviceops"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// device is a driver whose events are completed when the test says so.
type device struct {
	*drivertest.Null
	made, freed, asked int
	events             driver.Event
	behind             map[driver.Event]bool
	recordErr, syncErr error
}

func newDevice() *device { return &device{Null: &drivertest.Null{}, behind: map[driver.Event]bool{}} }

func (d *device) HostAlloc(bytes uint64) (driver.HostMemory, error) {
	d.made++
	return driver.HostMemory{Bytes: make([]byte, bytes), DevicePtr: uint64(d.made) << 32}, nil
}

func (d *device) HostFree(driver.HostMemory) error { d.freed++; return nil }

func (d *device) EventCreate() (driver.Event, error) { d.events++; return d.events, nil }

func (d *device) EventRecord(e driver.Event, _ driver.Stream) error {
	if d.recordErr == nil {
		d.behind[e] = true
	}
	return d.recordErr
}

func (d *device) EventQuery(e driver.Event) (bool, error) { d.asked++; return !d.behind[e], nil }

func (d *device) StreamSynchronize(driver.Stream) error { return d.syncErr }

// run makes a batch of one region on a stream.
func run(t *testing.T, m *Memory, stream core.StreamID, results bool) *Table {
	t.Helper()
	table := must.Get(m.Stage(stream, []deviceops.Region{{Ptr: 1 << 20, Bytes: 8}}, Patterns, results))(t)
	if table.Records() != 1 || table.ResultsPtr() != table.Ptr()+driver.GuardRecord {
		t.Errorf("%d records at %#x, results at %#x", table.Records(), table.Ptr(), table.ResultsPtr())
	}
	must.Do(t, m.End(table, 0))
	return table
}

func TestMemoryIsUsedAgainWhenItsBatchIsCompleted(t *testing.T) {
	d := newDevice()
	m := NewMemory(d)
	for range 10 { // none is completed
		m.Release(run(t, m, 1, false))
	}
	if d.made != 10 {
		t.Errorf("%d memories for 10 batches under way", d.made)
	}
	before := d.asked
	m.Release(run(t, m, 2, false))
	if d.asked-before > 2*looks {
		t.Errorf("the device was asked %d times for one batch", d.asked-before)
	}
	clear(d.behind)
	for range 20 {
		m.Release(run(t, m, 2, false))
		clear(d.behind)
	}
	if d.made != 11 {
		t.Errorf("%d memories were made, 11 are enough", d.made)
	}
	if err := m.Close(t.Context()); err != nil || d.freed != d.made {
		t.Errorf("%d of %d memories were freed: %v", d.freed, d.made, err)
	}
}

func TestResultsAreHadOnceAndTheirMemoryIsIdleThen(t *testing.T) {
	d := newDevice()
	m := NewMemory(d)
	r := NewResults(m, run(t, m, 1, true), 1)
	if _, err := r.Mismatches(); err == nil {
		t.Error("results of a batch under way")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	expect.Error(t, r.Wait(ended), context.Canceled, "waited")
	clear(d.behind)
	if bad, err := r.Mismatches(); len(bad) != 0 || err != nil {
		t.Errorf("%v, %v: what no kernel wrote differs in nothing", bad, err)
	}
	if _, err := r.Sums(); err == nil {
		t.Error("the results were had twice")
	}
	r.Discard() // nothing is left of it
	asked := d.asked
	m.Release(run(t, m, 2, false))
	if d.made != 1 || d.asked != asked {
		t.Errorf("%d memories, %d questions", d.made, d.asked-asked)
	}
	expect.Error(t, m.Close(ended), context.Canceled, "closed with a batch under way")
	clear(d.behind)
	if err := m.Close(t.Context()); err != nil || d.freed != 1 {
		t.Errorf("%d freed: %v", d.freed, err)
	}
}

func TestMemoryThatMayBeInUseIsNotUsedAgain(t *testing.T) {
	d := newDevice()
	m := NewMemory(d)
	stage := func() *Table {
		table, err := m.Stage(1, []deviceops.Region{{Bytes: 1}}, Patterns, false)
		must.Do(t, err)
		return table
	}
	d.recordErr = errors.New("not recorded")
	table := stage()
	expect.Error(t, m.End(table, 0), d.recordErr, "End")
	m.Release(table)
	if again := stage(); again != table { // the stream was synchronised
		t.Error("memory that is known to be unused is not used again")
	}
	d.syncErr = errors.New("not synchronised")
	if err := m.End(table, 0); !errors.Is(err, d.recordErr) || !errors.Is(err, d.syncErr) {
		t.Errorf("End: %v", err)
	}
	m.Release(table)
	if again := stage(); again == table {
		t.Error("memory that the device may use is used again")
	}
}
