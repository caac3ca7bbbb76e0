package books

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

// watered is a backend that is books alone.
type watered struct {
	*Group
	books []*Books
}

func newWatered(streams int) *watered {
	g, all := newGroup(streams)
	return &watered{g, all}
}

func (w *watered) allocate(on int, bytes uint64) *core.Block { return w.enter(w.books[on], bytes) }

func (w *watered) retire(on int, b *core.Block) { w.books[on].Retire(b, &Entry{}) }

func (w *watered) release(on int, b *core.Block) {
	w.books[on].Lock()
	defer w.books[on].Unlock()
	w.books[on].Leave(b, 0)
}

func at(second int64) time.Time { return time.Unix(second, 0) }

// highs are what was highest in each second, as a program that sees all counts.
type highs struct {
	of   map[int64]uint64
	size uint64
}

func (h *highs) change(second int64, by int64) {
	h.size = uint64(int64(h.size) + by)
	h.of[second] = max(h.of[second], h.size)
}

// want is the peak that a window shows at a second.
func (h *highs) want(second, length int64) (peak uint64) {
	for from := (second/length - 1) * length; from <= second; from++ {
		peak = max(peak, h.of[from])
	}
	return peak
}

// A service of many streams that works, idles and bursts, second by second: the
// windows have exactly what a program that sees every step has. Readers come when
// they like.
func TestTheWindowsHaveTheHighestOfTheirSeconds(t *testing.T) {
	const streams, seconds = 4, 400
	for range 10 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			type held struct {
				*core.Block
				on      int
				retired bool
			}
			w, blocks, start := newWatered(streams), []held(nil), int64(1_000_000+random.IntN(60))
			windows := NewWindows(w.Group, at(start))
			live, outstanding := highs{of: map[int64]uint64{}}, highs{of: map[int64]uint64{}}
			step := func(second int64) {
				if len(blocks) == 0 || random.IntN(5) < 2 {
					on := random.IntN(streams)
					b := w.allocate(on, uint64(1+random.IntN(1<<uint(1+random.IntN(20)))))
					blocks = append(blocks, held{Block: b, on: on})
					live.change(second, int64(b.Bytes))
					outstanding.change(second, int64(b.Bytes))
					return
				}
				i := random.IntN(len(blocks))
				b := &blocks[i]
				if !b.retired {
					b.retired = true
					w.retire(b.on, b.Block)
					live.change(second, -int64(b.Bytes))
					return
				}
				w.release(b.on, b.Block)
				outstanding.change(second, -int64(b.Bytes))
				blocks[i] = blocks[len(blocks)-1]
				blocks = blocks[:len(blocks)-1]
			}
			for second := start; second < start+seconds; second++ {
				windows.Turn(at(second))
				live.change(second, 0)
				outstanding.change(second, 0)
				if random.IntN(4) == 0 { // most seconds are idle
					for range random.IntN(160) {
						step(second)
					}
				}
				for range random.IntN(3) {
					windows.Turn(at(second)) // nothing in the same second
					for i, p := range windows.Peaks() {
						length := int64(windowLengths[i] / time.Second)
						if second/length == start/length || second/length == start/length+1 && second%length == 0 {
							continue // it began within a window
						}
						if p.Live != live.want(second, length) || p.Outstanding != outstanding.want(second, length) {
							t.Fatalf("second %d, %v: %d live, %d outstanding, want %d, %d", second, p.Length, p.Live, p.Outstanding, live.want(second, length), outstanding.want(second, length))
						}
					}
				}
			}
		})
	}
}

// A turn that is late by less than a second costs nothing but that; one that is
// later counts what was highest meanwhile wherever it may have been.
func TestALateTurnForgetsNothing(t *testing.T) {
	const start = 60_000 // a window of both lengths begins
	burst := func(w *watered, bytes uint64) {
		b := w.allocate(0, bytes)
		w.retire(0, b)
		w.release(0, b)
	}
	for name, test := range map[string]struct {
		late  time.Duration // of the first turn after the burst in second 14
		wants [3]uint64     // after it, and at the beginnings of the two windows of 15 s that follow
	}{
		"in time":         {0, [3]uint64{64, 1, 1}},
		"a little":        {999 * time.Millisecond, [3]uint64{64, 1, 1}},
		"a second":        {time.Second, [3]uint64{64, 64, 1}},
		"a window":        {15 * time.Second, [3]uint64{64, 1, 1}},
		"many windows":    {1000 * time.Second, [3]uint64{64, 64, 1}},
		"the clock back":  {-10 * time.Second, [3]uint64{64, 64, 1}},
		"far, far behind": {-1000 * time.Second, [3]uint64{64, 64, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatered(2)
			windows := NewWindows(w.Group, at(start))
			w.allocate(1, 1)
			windows.Turn(at(start + 14))
			burst(w, 63)
			turned := at(start + 15).Add(test.late)
			windows.Turn(turned)
			for i, want := range test.wants {
				if got := windows.Peaks()[0].Live; got != want {
					t.Errorf("turn %d: %d, want %d", i, got, want)
				}
				for range 15 {
					turned = turned.Add(time.Second)
					windows.Turn(turned)
				}
			}
		})
	}
}

func (w *Windows) next() time.Time { return at(w.began + 1) }

// Goroutines allocate and free on streams of their own while seconds pass and
// others read: nobody ever reads less than what he has himself, nor more than all
// can have together, and when all is given back the windows end with nothing.
func TestWindowsUnderLoad(t *testing.T) {
	const goroutines, rounds, size = 8, 3000, 1000
	w := newWatered(goroutines)
	windows := NewWindows(w.Group, at(0))
	stop := make(chan struct{})
	var workers, clock sync.WaitGroup
	clock.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				windows.Turn(windows.nextLocked())
				time.Sleep(50 * time.Microsecond)
			}
		}
	})
	seed := rand.Uint64()
	for on := range goroutines {
		workers.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(on)))
			for range rounds {
				b := w.allocate(on, uint64(1+random.IntN(size)))
				if random.IntN(16) == 0 {
					for _, p := range windows.Peaks() {
						if p.Live < b.Bytes || p.Live > goroutines*size || p.Outstanding < b.Bytes || p.Outstanding > goroutines*size {
							t.Errorf("seed %d: %+v read while %d of at most %d are live", seed, p, b.Bytes, goroutines*size)
							return
						}
					}
				}
				w.retire(on, b)
				w.release(on, b)
			}
		})
	}
	workers.Wait()
	close(stop)
	clock.Wait()
	for range 121 {
		windows.Turn(windows.next())
	}
	var st core.Stats
	w.AddPeaksTo(&st)
	for _, p := range windows.Peaks() {
		if p.Live != 0 || p.Outstanding != 0 || st.PeakBytes == 0 || st.PeakBytes > goroutines*size {
			t.Errorf("seed %d: at the end %+v, the peak was %d", seed, p, st.PeakBytes)
		}
	}
	for size, ended := range w.Turn() {
		if ended.Now != 0 {
			t.Errorf("size %d: %d bytes are live at the end", size, ended.Now)
		}
	}
}

func (w *Windows) nextLocked() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.next()
}
