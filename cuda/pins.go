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
