package cuda

import (
	"errors"
	"sync"
	"unsafe"
)

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
