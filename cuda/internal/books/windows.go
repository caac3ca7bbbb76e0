package books

import (
	"sync"
	"time"

	"github.com/fencepost-gpu/fencepost/core/readings"
)

// peakTick is how exact the windows of [Windows] are at their ends.
const peakTick = time.Second

// windowLengths are those of the windows, in the order of [Windows.Peaks].
var windowLengths = [...]time.Duration{15 * time.Second, 60 * time.Second}

// Windows keeps the peaks of a backend's memory over fixed windows of 15 and of
// 60 seconds, for metrics of programs that hold memory in bursts. Who reads, and
// how often, changes nothing: [Windows.Turn] does, and is to be called once at
// the beginning of each second.
//
// A window that is over has the peak of its seconds. Where Turn is late by some
// time, that much of the next window counts to the one before. Where it is late by
// a second or more, as in a process that was stopped, what was highest meanwhile
// counts to each window that it may have been in. All methods are safe for
// concurrent use; none calls the device or waits for it.
type Windows struct {
	group *Group

	mu sync.Mutex
	// began is the second, since 1970, in which the stretch began.
	began             int64
	live, outstanding [len(windowLengths)]window
}

// NewWindows returns windows that begin with what g has at now. A group has one Windows
// at most.
func NewWindows(g *Group, now time.Time) *Windows {
	w := &Windows{group: g, began: now.Unix()}
	for i, length := range windowLengths {
		w.live[i].index = windowOf(w.began, length)
		w.outstanding[i].index = w.live[i].index
	}
	return w
}

// Turn tells the windows that it is now. Within the second of the last turn it
// does nothing.
func (w *Windows) Turn(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	second := now.Unix()
	if second == w.began {
		return
	}
	ended := w.group.Turn()
	for i, length := range windowLengths {
		last, this := windowOf(second-1, length), windowOf(second, length)
		w.live[i].turn(ended[Live], last, this)
		w.outstanding[i].turn(ended[Outstanding], last, this)
	}
	w.began = second
}

// Peaks are those of the last window that is over, or of the one under way where
// that is higher already: a peak is seen from when it is reached until the next
// window is over. The slice is the caller's.
func (w *Windows) Peaks() []readings.WindowPeak {
	w.mu.Lock()
	defer w.mu.Unlock()
	live, outstanding := w.group.Recent(Live), w.group.Recent(Outstanding)
	peaks := make([]readings.WindowPeak, len(windowLengths))
	for i, length := range windowLengths {
		peaks[i] = readings.WindowPeak{Length: length, Live: w.live[i].peak(live), Outstanding: w.outstanding[i].peak(outstanding)}
	}
	return peaks
}

func windowOf(second int64, length time.Duration) int64 { return second / int64(length/peakTick) }

// window is the peaks of the last window that is over and of the one under way,
// which has a number. The stretch under way is in neither yet.
type window struct{ index, over, underWay int64 }

// turn takes in a stretch that ended with the window last, in the window this.
func (w *window) turn(s Stretch, last, this int64) {
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
