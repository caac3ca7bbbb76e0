package cuda

import (
	"errors"
	"runtime"
	"sync"
	"unsafe"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/fence"
)

// pin is a host buffer that a copy under way reads or writes.
type pin struct {
	event  *fence.Point
	pinner *runtime.Pinner
	host   unsafe.Pointer
}

// pinners keeps every pinner in use reachable, because Go ends the program
// when it collects one that still pins: a pool that is dropped without Close,
// or a device that is lost, must not do that.
var pinners sync.Map

// newPinner pins memory of Go's; of other memory it does nothing.
func newPinner(host unsafe.Pointer) *runtime.Pinner {
	p := new(runtime.Pinner)
	p.Pin((*byte)(host))
	pinners.Store(p, nil)
	return p
}

func dropPinner(p *runtime.Pinner) {
	p.Unpin()
	pinners.Delete(p)
}

// pinHost keeps host memory in place until what is enqueued on s now is completed.
// If that cannot be told the memory stays pinned for ever.
func (s *stream) pinHost(host unsafe.Pointer, lease core.StreamID) error {
	pinner := newPinner(host)
	if err := s.addPin(pin{pinner: pinner, host: host}, lease); err != nil {
		if errors.Is(err, core.ErrStreamMisuse) {
			return err // a synchronisation would invalidate the capture
		}
		if syncErr := s.drv.StreamSynchronize(s.Handle()); syncErr != nil {
			return errors.Join(err, syncErr)
		}
		dropPinner(pinner)
	}
	return nil
}

func (s *stream) addPin(p pin, lease core.StreamID) (err error) {
	s.Lock()
	defer s.Unlock()
	s.unpin()
	if err := s.RefuseCaptured("copy", lease); err != nil {
		return err
	}
	if p.event, err = s.Record(lease); err == nil {
		s.pins = append(s.pins, p)
		s.pinned.Store(int64(len(s.pins)))
	}
	return err
}

// unpin lets go of the buffers that the device is done with; s.mu must be
// held.
func (s *stream) unpin() {
	n := 0
	for n < len(s.pins) {
		p := s.pins[n]
		if done, err := s.QueryCompleted(p.event); err != nil || !done {
			break
		}
		dropPinner(p.pinner)
		p.event.Release()
		n++
	}
	left := copy(s.pins, s.pins[n:])
	clear(s.pins[left:])
	s.pins = s.pins[:left]
	s.pinned.Store(int64(left))
}

// errHostLost is why page-locked memory cannot be freed any more.
var errHostLost = errors.New("a copy of the buffer could not be fenced, so the device may use it until it is reset")

// lostHosts are addresses of host memory that a copy may use for nobody knows
// how long, because the driver let nothing be recorded behind it.
type lostHosts struct {
	mu    sync.Mutex
	hosts []uintptr
}

func (l *lostHosts) add(host unsafe.Pointer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hosts = append(l.hosts, uintptr(host))
}

func (l *lostHosts) within(low, high uintptr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, host := range l.hosts {
		if host >= low && host < high {
			return true
		}
	}
	return false
}

// copiesDone reports whether no copy under way uses host memory that begins
// in [low, high). The pins of the streams say which do: a copy is pinned under
// its own first address.
func (t *streamTable) copiesDone(low, high uintptr) (bool, error) {
	if t.lostHosts.within(low, high) {
		return false, errHostLost
	}
	for _, s := range t.everyStream() {
		if done, err := s.copiesDone(low, high); !done || err != nil {
			return false, err
		}
	}
	return true, nil
}

func (s *stream) copiesDone(low, high uintptr) (bool, error) {
	s.Lock()
	defer s.Unlock()
	s.unpin()
	for _, p := range s.pins {
		if host := uintptr(p.host); host >= low && host < high {
			_, err := s.QueryCompleted(p.event) // what unpin could not say
			return false, err
		}
	}
	return true, nil
}
