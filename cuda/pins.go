package cuda

import (
	"runtime"
	"unsafe"

	"github.com/fencepost-gpu/fencepost/core"
)

// pin is a host buffer that a copy under way reads or writes.
type pin struct {
	event  *event
	pinner *runtime.Pinner
}

// keep holds host memory in place until the device has passed what is
// enqueued on s now.
func (s *stream) keep(host unsafe.Pointer, lease core.StreamID) error {
	pinner := new(runtime.Pinner)
	pinner.Pin((*byte)(host))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unpin()
	e, err := s.record(lease)
	if err != nil {
		err = s.drv.StreamSynchronize(s.handle)
		pinner.Unpin()
		return err
	}
	s.pins = append(s.pins, pin{event: e, pinner: pinner})
	return nil
}

// unpin lets go of the buffers that the device is done with; s.mu must be
// held.
func (s *stream) unpin() {
	n := 0
	for n < len(s.pins) {
		p := s.pins[n]
		if !p.event.done() {
			done, err := s.drv.EventQuery(p.event.handle)
			if err != nil || !done {
				break
			}
			s.passed(p.event.seq)
		}
		p.pinner.Unpin()
		p.event.release()
		n++
	}
	left := copy(s.pins, s.pins[n:])
	clear(s.pins[left:])
	s.pins = s.pins[:left]
}
