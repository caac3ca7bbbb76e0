package cuda

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/internal/books"
)

// DefaultWatchInterval is how often a [MemoryWatch] reads the device.
const DefaultWatchInterval = time.Second

// Holder is a backend that [MemoryWatch] and [PeakWindows] can ask: an [AsyncResource] or a
// [DirectResource].
type Holder interface {
	// deviceBytes is what the backend has of the device's memory, in bytes.
	deviceBytes() (uint64, error)
	// peaks is where the backend keeps its peaks.
	peaks() *books.Group
	// Drift compares the books with the driver's pool; see
	// [AsyncResource.Drift].
	Drift() (bytes int64, ok bool, err error)
}

var (
	_ Holder = (*AsyncResource)(nil)
	_ Holder = (*DirectResource)(nil)
)

// MemoryReading is what a [MemoryWatch] last saw. Sizes are bytes.
type MemoryReading struct {
	// Read is when Free, Total, Owned and Foreign were read; zero if they never
	// were.
	Read time.Time
	// Free and Total are the device's memory.
	Free, Total uint64
	// Owned is what the backend has of the device: what its pool has reserved,
	// what it has mapped for isolated blocks, and direct blocks.
	Owned uint64
	// Foreign is what is used and not the backend's: other processes,
	// contexts, modules, libraries, and what the driver rounds up.
	Foreign uint64
	// Drift is that of [AsyncResource.Drift]; DriftRead is when it was
	// established, zero if it never was.
	Drift     int64
	DriftRead time.Time
}

// MemoryWatch reads a device's memory from time to time, so that metrics can
// tell of it without a device call. All methods are safe for concurrent use.
type MemoryWatch struct {
	drv      driver.Driver
	holder   Holder
	onSticky func(op string, err error)
	last     atomic.Pointer[MemoryReading]
	reading  sync.Mutex
	stop     func()
	done     chan struct{}
}

// MemoryWatchConfig says how a [MemoryWatch] reads. The zero value is a good one.
type MemoryWatchConfig struct {
	// Interval is the time between readings; 0 means [DefaultWatchInterval],
	// negative that only [MemoryWatch.Refresh] reads.
	Interval time.Duration
	// OnSticky, if not nil, hears of a sticky error of the driver's that a
	// reading in the background met: where nothing else calls the device,
	// nobody else would learn that it is lost. It is called once, and the
	// readings end with it. Close waits for it.
	OnSticky func(op string, err error)
}

// WatchMemory reads the memory of holder's device, drv, at once and then at
// every interval. A reading that fails leaves the one before. The watch must be
// closed before the backend is. It may block in the driver.
func WatchMemory(drv driver.Driver, holder Holder, cfg MemoryWatchConfig) *MemoryWatch {
	ctx, stop := context.WithCancel(context.Background())
	w := &MemoryWatch{drv: drv, holder: holder, onSticky: cfg.OnSticky, stop: stop, done: make(chan struct{})}
	w.last.Store(&MemoryReading{})
	_ = w.Refresh() // the reading says that it is missing
	if cfg.Interval < 0 {
		close(w.done)
		return w
	}
	go w.run(ctx, cmp.Or(cfg.Interval, DefaultWatchInterval))
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
				w.onSticky("WatchMemory", err)
			}
			return // no later one would succeed
		}
	}
}

// Last is the last reading. It makes no device call and does not block.
func (w *MemoryWatch) Last() MemoryReading { return *w.last.Load() }

// Refresh reads now. What could not be read stays as it was; the error is the
// first, a [core.DriverError]. It may block in the driver.
func (w *MemoryWatch) Refresh() error {
	w.reading.Lock()
	defer w.reading.Unlock()
	next := w.Last()
	memoryErr := w.readMemory(&next)
	drift, ok, err := w.holder.Drift()
	if ok {
		next.Drift, next.DriftRead = drift, time.Now()
	}
	w.last.Store(&next)
	if memoryErr != nil {
		return memoryErr
	}
	return err
}

// memoryTries is how often the device is read until what the backend holds is
// the same before and after.
const memoryTries = 8

func (w *MemoryWatch) readMemory(next *MemoryReading) error {
	own, err := w.holder.deviceBytes()
	if err != nil {
		return err
	}
	for try := 1; ; try++ {
		free, total, err := w.drv.MemInfo()
		if err != nil {
			return err
		}
		after, err := w.holder.deviceBytes()
		if err != nil {
			return err
		}
		if after == own || try == memoryTries {
			next.Read, next.Free, next.Total = time.Now(), free, total
			next.Owned, next.Foreign = after, total-min(total, free+after)
			return nil
		}
		own = after
	}
}

// Close stops the readings and waits for one that is under way until ctx ends and
// a moment more.
func (w *MemoryWatch) Close(ctx context.Context) error {
	w.stop()
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
	}
	select { // the goroutine ends by itself, unless it is in the driver
	case <-w.done:
		return nil
	case <-time.After(driverMoment):
		return fmt.Errorf("a reading of the device's memory does not end: %w", ctx.Err())
	}
}

func (r *tracker) deviceBytes() (uint64, error) {
	now, err := r.readMemory()
	return now.Reserved + r.mapper.Mapped(), err
}

func (r *DirectResource) deviceBytes() (uint64, error) { return r.Stats().Live.Bytes, nil }

// Drift has nothing to compare: there is no pool, so ok is false.
func (r *DirectResource) Drift() (bytes int64, ok bool, err error) { return 0, false, nil }

// peakTick is how exact the windows of [PeakWindows] are at their ends.
const peakTick = time.Second

// windowLengths are those of the windows, in the order of [PeakWindows.Peaks].
var windowLengths = [...]time.Duration{15 * time.Second, 60 * time.Second}

// WindowPeak is the most memory that a backend had during a window of time.
type WindowPeak struct {
	// Length is that of the window, which begins at a multiple of it since 1970.
	Length time.Duration
	// Live is the highest live bytes, without what a guard withholds, and
	// Outstanding the highest of live, pending and quarantined bytes together.
	Live, Outstanding uint64
}

// PeakWindows keeps the peaks of a backend's memory over fixed windows of 15 and of
// 60 seconds, for metrics of programs that hold memory in bursts. Who reads, and
// how often, changes nothing: [PeakWindows.Turn] does, and is to be called once at
// the beginning of each second.
//
// A window that is over has the peak of its seconds. Where Turn is late by some
// time, that much of the next window counts to the one before. Where it is late by
// a second or more, as in a process that was stopped, what was highest meanwhile
// counts to each window that it may have been in. While the sizes reach new highs
// more than a thousand times in one second, the rest of that second counts with
// the sum of what each stream had at its own highest. All methods are safe for
// concurrent use; none calls the device or waits for it.
type PeakWindows struct {
	group *books.Group

	mu sync.Mutex
	// began is the second, since 1970, in which the stretch began.
	began             int64
	live, outstanding [len(windowLengths)]window
}

func (r *tracker) peaks() *books.Group { return &r.streams.table.group }

func (r *DirectResource) peaks() *books.Group { return &r.group }

// NewPeakWindows returns windows that begin with what holder has at now. A holder
// has one PeakWindows at most.
func NewPeakWindows(holder Holder, now time.Time) *PeakWindows {
	w := &PeakWindows{group: holder.peaks(), began: now.Unix()}
	for i, length := range windowLengths {
		w.live[i].index = windowOf(w.began, length)
		w.outstanding[i].index = w.live[i].index
	}
	return w
}

// Turn tells the windows that it is now. Within the second of the last turn it
// does nothing.
func (w *PeakWindows) Turn(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	second := now.Unix()
	if second == w.began {
		return
	}
	live := w.group.Turn(books.Live)
	outstanding := w.group.Turn(books.Outstanding)
	for i, length := range windowLengths {
		last, this := windowOf(second-1, length), windowOf(second, length)
		w.live[i].turn(live, last, this)
		w.outstanding[i].turn(outstanding, last, this)
	}
	w.began = second
}

// Peaks are those of the last window that is over, or of the one under way where
// that is higher already: a peak is seen from when it is reached until the next
// window is over. The slice is the caller's.
func (w *PeakWindows) Peaks() []WindowPeak {
	w.mu.Lock()
	defer w.mu.Unlock()
	live, outstanding := w.group.Recent(books.Live), w.group.Recent(books.Outstanding)
	peaks := make([]WindowPeak, len(windowLengths))
	for i, length := range windowLengths {
		peaks[i] = WindowPeak{Length: length, Live: w.live[i].peak(live), Outstanding: w.outstanding[i].peak(outstanding)}
	}
	return peaks
}

func windowOf(second int64, length time.Duration) int64 { return second / int64(length/peakTick) }

// window is the peaks of the last window that is over and of the one under way,
// which has a number. The stretch under way is in neither yet.
type window struct{ index, over, underWay int64 }

// turn takes in a stretch that ended with the window last, in the window this.
func (w *window) turn(s books.Stretch, last, this int64) {
	w.underWay = max(w.underWay, s.Peak)
	if this == w.index {
		return
	}
	w.over = w.underWay
	if this > w.index+1 { // the one that is over lies within the stretch
		w.over = s.Peak
	}
	w.underWay = s.Now
	if last == this { // the stretch goes on into the window under way
		w.underWay = s.Peak
	}
	w.index = this
}

func (w *window) peak(stretch int64) uint64 { return clamp(max(w.over, w.underWay, stretch)) }
