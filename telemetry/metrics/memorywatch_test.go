package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/readings"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

// patience is how long what must happen is waited for.
const patience = 20 * time.Second

// backend is a device of 512 MiB of which the backend owns 8, and others 16.
type backend struct {
	readings     atomic.Int64
	read, drifts func() error // nil if they succeed
}

func (b *backend) DeviceMemory() (free, total, owned uint64, err error) {
	b.readings.Add(1)
	if b.read != nil {
		if err := b.read(); err != nil {
			return 0, 0, 0, err
		}
	}
	return 488 << 20, 512 << 20, 8 << 20, nil
}

func (b *backend) Drift() (readings.Drift, error) {
	if b.drifts != nil {
		return readings.Drift{}, b.drifts()
	}
	return readings.Drift{Bytes: -3, Known: true}, nil
}

func watch(t *testing.T, b *backend, cfg metrics.MemoryWatchConfig) *metrics.MemoryWatch {
	t.Helper()
	w := metrics.NewMemoryWatch(b, cfg)
	t.Cleanup(func() {
		expect.Success(t, w.Close(context.Background()))
	})
	return w
}

func TestAWatchReadsAtOnceAndWhenAsked(t *testing.T) {
	b := &backend{}
	w := watch(t, b, metrics.MemoryWatchConfig{Interval: -1})
	first := w.Last()
	if first.Read.IsZero() || first.DriftRead.IsZero() || first.Owned != 8<<20 || first.Foreign != 16<<20 || first.Drift != -3 {
		t.Fatalf("at the beginning: %+v", first)
	}
	if w.Last() != first || b.readings.Load() != 1 {
		t.Errorf("%d readings, of which one was asked for", b.readings.Load())
	}
	if err := w.Refresh(); err != nil || !w.Last().Read.After(first.Read) {
		t.Errorf("it is not read any more: %v", err)
	}
}

func TestWhatCannotBeReadStaysAsItWas(t *testing.T) {
	b := &backend{}
	w := watch(t, b, metrics.MemoryWatchConfig{Interval: -1})
	first, refused := w.Last(), errors.New("refused")
	b.read = func() error { return refused }
	expect.Error(t, w.Refresh(), refused, "Refresh")
	if last := w.Last(); last.Read != first.Read || last.Free != first.Free || !last.DriftRead.After(first.DriftRead) {
		t.Errorf("%+v became %+v", first, last)
	}
	second := w.Last()
	b.read, b.drifts = nil, func() error { return refused }
	expect.Error(t, w.Refresh(), refused, "Refresh")
	if last := w.Last(); last.DriftRead != second.DriftRead || !last.Read.After(second.Read) {
		t.Errorf("%+v became %+v", second, last)
	}
}

func TestTheWatchReadsByItself(t *testing.T) {
	w := watch(t, &backend{}, metrics.MemoryWatchConfig{Interval: time.Millisecond})
	first := w.Last().Read
	for deadline := time.Now().Add(patience); !w.Last().Read.After(first); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not")
		}
	}
}

// A driver that does not answer keeps nobody from closing in time.
func TestCloseOfAWatchIsBounded(t *testing.T) {
	arrived, answer := make(chan struct{}), make(chan struct{})
	b := &backend{}
	b.read = func() error {
		if b.readings.Load() == 2 { // the first is made by NewMemoryWatch itself
			close(arrived)
			<-answer
		}
		return nil
	}
	w := watch(t, b, metrics.MemoryWatchConfig{Interval: time.Millisecond})
	<-arrived
	moment, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := w.Close(moment); err == nil || !errors.Is(err, moment.Err()) {
		t.Errorf("closing while a reading hangs: %v", err)
	}
	close(answer)
}

// A lost device is told of once, and not asked again.
func TestTheWatchTellsOfALostDeviceOnce(t *testing.T) {
	lost := make(chan error, 8)
	b := &backend{}
	b.read = func() error {
		switch n := b.readings.Load(); {
		case n > 3:
			return &core.DriverError{Op: "MemInfo", Sticky: true}
		case n > 1:
			return &core.DriverError{Op: "MemInfo"} // which loses nothing
		}
		return nil
	}
	w := watch(t, b, metrics.MemoryWatchConfig{Interval: time.Millisecond, OnSticky: func(_ string, err error) { lost <- err }})
	select {
	case err := <-lost:
		if !errors.Is(err, core.ErrSticky) {
			t.Errorf("told of %v", err)
		}
	case <-time.After(patience):
		t.Fatal("it does not tell")
	}
	if err := w.Close(t.Context()); err != nil { // its readings have ended
		t.Error(err)
	}
	if n := b.readings.Load(); len(lost) != 0 || n != 4 {
		t.Errorf("%d readings, told again: %v", n, len(lost) != 0)
	}
}

// A watch tells of the device's memory without asking the device.
func ExampleNewMemoryWatch() {
	var resource metrics.Backend = &backend{} // a resource of package cuda
	watch := metrics.NewMemoryWatch(resource, metrics.MemoryWatchConfig{})
	defer func() { _ = watch.Close(context.Background()) }()

	m := watch.Last()
	fmt.Println(m.Total>>20, "MiB,", m.Free>>20, "free,", m.Foreign>>20, "of others")
	// Output: 512 MiB, 488 free, 16 of others
}
