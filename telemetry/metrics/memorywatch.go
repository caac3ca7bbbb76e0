package metrics

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/readings"
	"github.com/fencepost-gpu/fencepost/internal/deadline"
	"github.com/fencepost-gpu/fencepost/internal/usercode"
)

// Backend is what a [MemoryWatch] asks: the resource that takes memory from the device. Both
// of package cuda are one.
type Backend interface {
	// DeviceMemory reads the device's memory in bytes: what is free of the total, and what
	// the backend owns of it. It may block in the driver.
	DeviceMemory() (free, total, owned uint64, err error)
	// Drift is what the books say that the pool has handed out, less what the
	// pool says. It may block in the driver.
	Drift() (readings.Drift, error)
}

// MemoryWatch reads a device's memory from time to time, so that metrics can
// tell of it without a device call. All methods are safe for concurrent use.
type MemoryWatch struct {
	backend  Backend
	onSticky func(op string, err error)
	last     atomic.Pointer[DeviceMemory]
	reading  sync.Mutex
	stop     func()
	done     chan struct{}
}

// MemoryWatchConfig says how a [MemoryWatch] reads. The zero value is a good one.
type MemoryWatchConfig struct {
	// Interval is the time between readings; 0 means one second,
	// negative that only [MemoryWatch.Refresh] reads.
	Interval time.Duration
	// OnSticky, if not nil, hears of a sticky error of the driver's that a
	// reading in the background met: where nothing else calls the device,
	// no other caller would learn that it is lost. It is called once, and the
	// readings end with it. Close waits for it.
	OnSticky func(op string, err error)
}

// NewMemoryWatch reads the memory of backend's device at once and then at every interval. A
// reading that fails leaves the one before. The watch must be closed before the backend
// is. It may block in the driver.
func NewMemoryWatch(backend Backend, cfg MemoryWatchConfig) *MemoryWatch {
	ctx, stop := context.WithCancel(context.Background())
	w := &MemoryWatch{backend: backend, onSticky: cfg.OnSticky, stop: stop, done: make(chan struct{})}
	w.last.Store(&DeviceMemory{})
	_ = w.Refresh() // the reading says that it is missing
	if cfg.Interval < 0 {
		close(w.done)
		return w
	}
	go w.run(ctx, cmp.Or(cfg.Interval, time.Second))
	return w
}

func (w *MemoryWatch) run(ctx context.Context, interval time.Duration) {
	defer close(w.done)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := w.Refresh(); errors.Is(err, core.ErrSticky) { // others are told by the age of the reading
			if w.onSticky != nil {
				usercode.Call("MemoryWatchConfig.OnSticky", func() { w.onSticky("WatchMemory", err) })
			}
			return // no later one would succeed
		}
	}
}

// Last is the last reading. It makes no device call and does not block.
func (w *MemoryWatch) Last() DeviceMemory { return *w.last.Load() }

// Refresh reads now. What could not be read stays as it was; the error is the
// first, a [core.DriverError]. It may block in the driver.
func (w *MemoryWatch) Refresh() error {
	w.reading.Lock()
	defer w.reading.Unlock()
	next := w.Last()
	free, total, owned, err := w.backend.DeviceMemory()
	if err == nil {
		next.Read, next.Free, next.Total = time.Now(), free, total
		next.Owned, next.Foreign = owned, total-min(total, free+owned)
	}
	drift, driftErr := w.backend.Drift()
	if drift.Known {
		next.Drift, next.DriftRead = drift.Bytes, time.Now()
	}
	w.last.Store(&next)
	return cmp.Or(err, driftErr)
}

// Close stops the readings and waits for one that is under way until ctx ends and
// a moment more.
func (w *MemoryWatch) Close(ctx context.Context) error {
	w.stop()
	if deadline.Await(ctx, w.done) == nil {
		return nil
	}
	select { // the goroutine ends by itself, unless it is in the driver
	case <-w.done:
		return nil
	case <-time.After(time.Second):
		return fmt.Errorf("a reading of the device's memory does not end: %w", ctx.Err())
	}
}
