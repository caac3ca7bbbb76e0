package drivertest

import (
	"runtime"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// captured is the work of a function, which it enqueues on st, as a graph.
func (s *suite) captured(st driver.Stream, work func()) driver.Graph {
	s.Helper()
	s.must(s.d.StreamBeginCapture(st))
	s.wantCapturing(st, true)
	work()
	g, err := s.d.StreamEndCapture(st)
	s.must(err)
	s.wantCapturing(st, false)
	return g
}

func (s *suite) wantCapturing(st driver.Stream, want bool) {
	s.Helper()
	capturing, err := s.d.StreamCapturing(st)
	s.must(err)
	if capturing != want {
		s.Fatalf("stream %#x is capturing: %v, want %v", st, capturing, want)
	}
}

// capture: captured work runs with the graph, as often as that is launched,
// and not before.
func (s *suite) capture() {
	const n = 4096
	st, other := s.stream(), s.stream()
	ptr := s.alloc(2*n, st)
	s.must(s.d.MemsetAsync(ptr, 1, 2*n, st))
	s.must(s.d.StreamSynchronize(st))
	g := s.captured(st, func() {
		s.must(s.d.MemsetAsync(ptr, 2, n, st))
		s.must(s.d.CopyOnDeviceAsync(ptr+n, ptr, n, st))
	})
	s.wantAll(s.read(ptr, 2*n, st), 1)
	for range 3 {
		for _, on := range []driver.Stream{st, other} {
			s.must(s.d.GraphLaunch(g, on))
			s.wantAll(s.read(ptr, 2*n, on), 2)
			s.must(s.d.MemsetAsync(ptr, 1, 2*n, on))
			s.must(s.d.StreamSynchronize(on))
		}
	}
	s.must(s.d.GraphLaunch(g, st))
	s.must(s.d.GraphDestroy(g)) // what is queued still runs
	s.wantAll(s.read(ptr, 2*n, st), 2)
	s.must(s.d.MemFreeAsync(ptr, st))
	s.must(s.d.StreamSynchronize(st))
}

// captureOfStreams: a wait draws a stream in, and the first must wait for its
// work in turn.
func (s *suite) captureOfStreams() {
	const n = 4096
	st, fork, e := s.stream(), s.stream(), s.event()
	ptr := s.alloc(n, st)
	s.must(s.d.MemsetAsync(ptr, 1, n, st))
	s.must(s.d.StreamSynchronize(st))
	drawIn := func() {
		s.must(s.d.EventRecord(e, st))
		s.must(s.d.StreamWait(fork, e))
		s.wantCapturing(fork, true)
		s.must(s.d.MemsetAsync(ptr, 3, n, fork))
	}
	g := s.captured(st, func() {
		drawIn()
		s.must(s.d.EventRecord(e, fork))
		s.must(s.d.StreamWait(st, e))
	})
	s.wantCapturing(fork, false)
	s.must(s.d.GraphLaunch(g, st))
	s.wantAll(s.read(ptr, n, st), 3)
	s.must(s.d.GraphDestroy(g))

	s.must(s.d.StreamBeginCapture(st))
	drawIn()
	_, err := s.d.StreamEndCapture(st)
	s.wantCode(err, driver.CaptureUnjoined)
	s.wantCapturing(st, false)
	s.wantCapturing(fork, false)
	s.must(s.d.MemFreeAsync(ptr, fork))
	s.must(s.d.StreamSynchronize(fork))
}

// captureProhibits: what cannot be captured fails, and the capture with it. What
// a look at a captured event does to the capture is not documented.
func (s *suite) captureProhibits() {
	st, other, outside, inside := s.stream(), s.stream(), s.event(), s.event()
	s.must(s.d.EventRecord(outside, other))
	for _, c := range []struct {
		codes []int
		call  func() error
	}{
		{[]int{driver.CaptureUnsupported}, func() error { return s.d.StreamSynchronize(st) }},
		{[]int{driver.CaptureUnsupported}, func() error { _, err := s.d.StreamQuery(st); return err }},
		{[]int{driver.CaptureIsolation}, func() error { return s.d.StreamWait(st, outside) }},
		{[]int{driver.CapturedEvent, driver.CaptureUnsupported}, func() error { _, err := s.d.EventQuery(inside); return err }},
		{[]int{driver.CapturedEvent, driver.CaptureUnsupported}, func() error { return s.d.EventSynchronize(inside) }},
	} {
		s.must(s.d.StreamBeginCapture(st))
		s.must(s.d.EventRecord(inside, st))
		s.wantCode(c.call(), c.codes...)
		s.wantCapturing(st, true) // until it is ended
		s.endInvalid(st, len(c.codes) > 1)
		s.wantCapturing(st, false)
		s.must(s.d.StreamSynchronize(st))
	}
	s.wantCode(s.d.StreamBeginCapture(legacyStream), driver.CaptureUnsupported, driver.CaptureImplicit, driver.InvalidValue)
	_, err := s.d.StreamEndCapture(st)
	s.wantCode(err, driver.IllegalState, driver.InvalidValue)
	s.wantCode(s.d.GraphLaunch(0, st), driver.InvalidHandle, driver.InvalidValue)
	s.wantCode(s.d.GraphDestroy(0), driver.InvalidHandle, driver.InvalidValue)
}

// endInvalid ends a capture that was invalidated, or perhaps was.
func (s *suite) endInvalid(st driver.Stream, perhaps bool) {
	s.Helper()
	g, err := s.d.StreamEndCapture(st)
	if err == nil && perhaps {
		s.must(s.d.GraphDestroy(g))
		return
	}
	s.wantCode(err, driver.CaptureInvalidated)
}

// capturesApart: two captures cannot become one.
func (s *suite) capturesApart() {
	a, b, e := s.stream(), s.stream(), s.event()
	s.must(s.d.StreamBeginCapture(a))
	s.must(s.d.StreamBeginCapture(b))
	s.must(s.d.EventRecord(e, a))
	s.wantCode(s.d.StreamWait(b, e), driver.CaptureMerge)
	s.endInvalid(b, false)
	s.endInvalid(a, true)
}

// captureLeavesOthersAlone: beside a capture everything else goes on, and the
// capture may end on another thread than it began on.
func (s *suite) captureLeavesOthersAlone() {
	const n = 4096
	st, other, e := s.stream(), s.stream(), s.event()
	ptr := s.alloc(n, other)
	s.onAThread(func() error { return s.d.StreamBeginCapture(st) })
	s.must(s.d.MemsetAsync(ptr, 5, n, st))
	scratch := s.alloc(heavy, other)
	s.must(s.d.EventRecord(e, other))
	s.must(s.d.EventSynchronize(e))
	s.poll(func() (bool, error) { return s.d.EventQuery(e) })
	s.poll(func() (bool, error) { return s.d.StreamQuery(other) })
	s.must(s.d.MemsetAsync(ptr, 4, n, other))
	s.wantAll(s.read(ptr, n, other), 4)
	s.must(s.d.MemFreeAsync(scratch, other))
	direct := s.direct(n)
	s.must(s.d.StreamSynchronize(other))
	var g driver.Graph
	s.onAThread(func() (err error) { g, err = s.d.StreamEndCapture(st); return err })
	s.must(s.d.GraphLaunch(g, other))
	s.wantAll(s.read(ptr, n, other), 5)
	s.must(s.d.GraphDestroy(g))
	s.must(s.d.MemFree(direct))
	s.must(s.d.MemFreeAsync(ptr, other))
	s.must(s.d.StreamSynchronize(other))
}

// onAThread makes a call on a thread of its own.
func (s *suite) onAThread(call func() error) {
	s.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		done <- call()
	}()
	s.must(<-done)
}
