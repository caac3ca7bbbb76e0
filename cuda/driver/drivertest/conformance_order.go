package drivertest

import (
	"time"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// heavy is enough bytes to keep a device busy for a moment.
const heavy = 16 << 20

// pollLimit bounds the polling of work that must end.
const pollLimit = 30 * time.Second

// legacyStream is the default stream; noEvent names no event.
const (
	legacyStream driver.Stream = 0
	noEvent      driver.Event  = 0
)

func (s *suite) streamOrder() {
	st := s.stream()
	ptr := s.alloc(heavy, st)
	for i := byte(1); i <= 8; i++ {
		s.must(s.d.MemsetAsync(ptr, i, heavy, st))
	}
	s.wantAll(s.read(ptr, heavy, st), 8)
	s.must(s.d.MemFreeAsync(ptr, st))
	s.must(s.d.StreamSynchronize(st))
}

func (s *suite) streamHandles() {
	a, b := s.stream(), s.stream()
	if a == b || a == legacyStream || b == legacyStream {
		s.Fatalf("streams got handles %#x and %#x", a, b)
	}
	done, err := s.d.StreamQuery(a)
	s.must(err)
	if !done {
		s.Fatal("a stream without work is not done")
	}
	s.must(s.d.StreamSynchronize(a))
	s.must(s.d.StreamDestroy(a))
	s.must(s.d.StreamSynchronize(b))
	s.must(s.d.StreamDestroy(b))
}

func (s *suite) defaultStream() {
	ptr := s.alloc(4096, legacyStream)
	s.must(s.d.MemsetAsync(ptr, 3, 4096, legacyStream))
	s.wantAll(s.read(ptr, 4096, legacyStream), 3)
	s.must(s.d.MemFreeAsync(ptr, legacyStream))
	s.must(s.d.StreamSynchronize(legacyStream))
}

func (s *suite) destroyedStream() {
	a, b, e := s.stream(), s.stream(), s.event()
	ptr := s.alloc(heavy, a)
	s.must(s.d.MemsetAsync(ptr, 4, heavy, a))
	s.must(s.d.EventRecord(e, a))
	s.must(s.d.StreamDestroy(a))
	// Work that was queued still runs, and can be waited for.
	s.must(s.d.StreamWait(b, e))
	s.wantAll(s.read(ptr, heavy, b), 4)
	s.must(s.d.MemFreeAsync(ptr, b))
	s.must(s.d.Synchronize())
}

func (s *suite) eventNeverRecorded() {
	e := s.event()
	done, err := s.d.EventQuery(e)
	s.must(err)
	if !done {
		s.Fatal("an event never recorded is not done")
	}
	s.must(s.d.EventSynchronize(e))
	st := s.stream()
	s.must(s.d.StreamWait(st, e))
	s.must(s.d.StreamSynchronize(st))
	s.must(s.d.EventDestroy(e))
}

func (s *suite) eventHandles() {
	st := s.stream()
	a, b := s.event(), s.event()
	if a == b || a == noEvent || b == noEvent {
		s.Fatalf("events got handles %#x and %#x", a, b)
	}
	s.wantCode(s.d.EventRecord(noEvent, st), driver.InvalidHandle)
	s.wantCode(s.d.StreamWait(st, noEvent), driver.InvalidHandle)
	s.wantCode(s.d.EventSynchronize(noEvent), driver.InvalidHandle)
	_, err := s.d.EventQuery(noEvent)
	s.wantCode(err, driver.InvalidHandle)
	s.wantCode(s.d.EventDestroy(noEvent), driver.InvalidHandle)
	s.must(s.d.EventDestroy(a))
	s.must(s.d.EventDestroy(b))
}

// crossStreamWait passes a value through several streams.
func (s *suite) crossStreamWait() {
	a, b := s.stream(), s.stream()
	e, f := s.event(), s.event()
	ptr := s.alloc(heavy, a)
	for round := byte(1); round < 20; round += 2 {
		s.must(s.d.MemsetAsync(ptr, round, heavy, a))
		s.must(s.d.EventRecord(e, a))
		s.must(s.d.StreamWait(b, e))
		s.must(s.d.MemsetAsync(ptr, round+1, heavy, b))
		s.must(s.d.EventRecord(f, b))
		s.must(s.d.StreamWait(a, f))
		s.wantAll(s.read(ptr, heavy, a), round+1)
	}
	s.must(s.d.MemFreeAsync(ptr, a))
	s.must(s.d.StreamSynchronize(a))
}

// recordAgain: recording moves no wait that was queued before.
func (s *suite) recordAgain() {
	a, b, c := s.stream(), s.stream(), s.stream()
	e := s.event()
	ptr := s.alloc(heavy, a)
	s.must(s.d.MemsetAsync(ptr, 1, heavy, a))
	s.must(s.d.EventRecord(e, a))
	s.must(s.d.StreamWait(b, e))
	s.must(s.d.EventRecord(e, c)) // c has no work: done at once
	s.wantAll(s.read(ptr, heavy, b), 1)
	s.must(s.d.EventSynchronize(e))
	s.must(s.d.MemFreeAsync(ptr, b))
	s.must(s.d.StreamSynchronize(b))
}

// destroyedEvent: waits that were queued stay.
func (s *suite) destroyedEvent() {
	a, b := s.stream(), s.stream()
	ptr := s.alloc(heavy, a)
	for i := byte(1); i < 6; i++ {
		e := s.event()
		s.must(s.d.MemsetAsync(ptr, i, heavy, a))
		s.must(s.d.EventRecord(e, a))
		s.must(s.d.StreamWait(b, e))
		s.must(s.d.EventDestroy(e))
		s.wantAll(s.read(ptr, heavy, b), i)
	}
	s.must(s.d.MemFreeAsync(ptr, b))
	s.must(s.d.StreamSynchronize(b))
}

func (s *suite) queryAfterSynchronize() {
	st, e := s.stream(), s.event()
	ptr := s.alloc(heavy, st)
	s.must(s.d.MemsetAsync(ptr, 1, heavy, st))
	s.must(s.d.EventRecord(e, st))
	s.must(s.d.EventSynchronize(e))
	done, err := s.d.EventQuery(e)
	s.must(err)
	if !done {
		s.Fatal("an event is not done after it was synchronised with")
	}
	s.must(s.d.MemFreeAsync(ptr, st))
	s.must(s.d.Synchronize())
	if done, err = s.d.StreamQuery(st); err != nil || !done {
		s.Fatalf("after Synchronize a stream answers %v, %v", done, err)
	}
}

// pollingEnds: work ends without a call that waits for it.
func (s *suite) pollingEnds() {
	st, e := s.stream(), s.event()
	ptr := s.alloc(heavy, st)
	s.must(s.d.MemsetAsync(ptr, 1, heavy, st))
	s.must(s.d.EventRecord(e, st))
	s.must(s.d.MemFreeAsync(ptr, st))
	s.poll(func() (bool, error) { return s.d.EventQuery(e) })
	s.poll(func() (bool, error) { return s.d.StreamQuery(st) })
}

func (s *suite) poll(query func() (bool, error)) {
	s.Helper()
	for start := time.Now(); time.Since(start) < pollLimit; {
		done, err := query()
		s.must(err)
		if done {
			return
		}
	}
	s.Fatalf("not done within %v", pollLimit)
}

// reuseOnOneStream: a stream can free and allocate in its own order without
// ever waiting, many times more than the device has.
func (s *suite) reuseOnOneStream() {
	st := s.stream()
	p := s.pool(driver.PoolConfig{MaxBytes: 2 * heavy})
	for i := range 64 {
		ptr, err := s.d.MemAllocAsync(heavy, p, st)
		s.must(err)
		s.must(s.d.MemsetAsync(ptr, byte(i), 4096, st))
		s.must(s.d.MemFreeAsync(ptr, st))
	}
	s.must(s.d.StreamSynchronize(st))
	s.must(s.d.PoolDestroy(p))
}

// eventTimes: events with timing say when the device came to them, in its order and in both directions.
func (s *suite) eventTimes() {
	timing := func() driver.Event {
		e, err := s.d.TimingEventCreate()
		s.must(err)
		return e
	}
	elapsed := func(from, to driver.Event) time.Duration {
		s.Helper()
		d, err := s.d.EventElapsed(from, to)
		s.must(err)
		return d
	}
	a, b := s.stream(), s.stream()
	before, between, behind, never := timing(), timing(), timing(), timing()
	untimed := s.event()
	ptr := s.alloc(heavy, a)
	began := time.Now()
	s.must(s.d.EventRecord(before, a))
	s.must(s.d.MemsetAsync(ptr, 1, heavy, a))
	s.must(s.d.EventRecord(between, a))
	s.must(s.d.EventRecord(untimed, a))
	s.must(s.d.StreamWait(b, between))
	s.must(s.d.MemsetAsync(ptr, 2, heavy, b))
	s.must(s.d.EventRecord(behind, b))
	s.must(s.d.StreamSynchronize(b))
	s.must(s.d.StreamSynchronize(a))
	took := time.Since(began)
	first, second, both := elapsed(before, between), elapsed(between, behind), elapsed(before, behind)
	if first <= 0 || second <= 0 {
		s.Errorf("fills of %d bytes took %v and %v", heavy, first, second)
	}
	if off := (first + second - both).Abs(); off > 2*time.Microsecond {
		s.Errorf("%v and %v are %v together", first, second, both)
	}
	if both > took && driver.HostTimeOf(s.d) == nil {
		s.Errorf("they took %v of the %v that the host waited", both, took)
	}
	if back := elapsed(behind, before); (back + both).Abs() > time.Microsecond {
		s.Errorf("back it is %v, and %v forward", back, both)
	}
	_, err := s.d.EventElapsed(before, never)
	s.wantCode(err, driver.InvalidHandle)
	_, err = s.d.EventElapsed(before, untimed)
	s.wantCode(err, driver.InvalidHandle)
	for _, e := range []driver.Event{before, between, behind, never, untimed} {
		s.must(s.d.EventDestroy(e))
	}
	s.must(s.d.MemFreeAsync(ptr, b))
	s.must(s.d.StreamSynchronize(b))
}
