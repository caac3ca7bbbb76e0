package gputest

import (
	"fmt"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
)

// touch lets the conformance suite reach the bytes of a device. Copies go
// through page-locked memory: the driver copies to any other before it
// returns, and waits for a stalled stream then.
type touch struct {
	*teststack.Stack
	on *hardware

	mu    sync.Mutex
	lanes map[core.StreamID]*lane
}

// lane is what was read on one stream and not yet handed over.
type lane struct {
	syncing sync.Mutex // held by whoever hands over
	reads   []read
}

type read struct{ to, from []byte }

var _ coretest.Device = (*touch)(nil)

func (h *hardware) touch(s *teststack.Stack) coretest.Device {
	return &touch{Stack: s, on: h, lanes: map[core.StreamID]*lane{}}
}

// handle panics where the suite names a stream that it does not hold: a fault
// of the suite, in a place from which no error can be returned.
func (d *touch) handle(id core.StreamID) driver.Stream {
	h, err := d.Streams.Handle(id)
	if err != nil {
		panic(fmt.Sprintf("the suite named a stream that it does not hold: %v", err))
	}
	return h
}

func (d *touch) Write(stream core.StreamID, ptr uint64, src []byte) error {
	memory, _, err := d.on.take(len(src))
	if err != nil {
		return err
	}
	copy(memory, src)
	return d.on.CopyToDeviceAsync(ptr, memory, d.handle(stream))
}

func (d *touch) Read(stream core.StreamID, ptr uint64, dst []byte) error {
	memory, _, err := d.on.take(len(dst))
	if err != nil {
		return err
	}
	if err := d.on.CopyToHostAsync(memory, ptr, d.handle(stream)); err != nil {
		return err
	}
	l := d.lane(stream)
	d.mu.Lock()
	defer d.mu.Unlock()
	l.reads = append(l.reads, read{to: dst, from: memory})
	return nil
}

func (d *touch) lane(stream core.StreamID) *lane {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.lanes[stream]
	if l == nil {
		l = &lane{}
		d.lanes[stream] = l
	}
	return l
}

func (d *touch) Stall(stream core.StreamID) func() {
	release, err := d.on.hold(d.handle(stream))
	if err != nil {
		panic(fmt.Sprintf("holding a stream: %v", err))
	}
	return release
}

// Sync hands over what was read before it was called. Of two callers on one
// stream the second returns when the first has handed over: that may have taken
// the second's reads along.
func (d *touch) Sync(stream core.StreamID) error {
	l := d.lane(stream)
	l.syncing.Lock()
	defer l.syncing.Unlock()
	d.mu.Lock()
	reads := l.reads
	l.reads = nil
	d.mu.Unlock()
	err := d.on.StreamSynchronize(d.handle(stream))
	for _, r := range reads {
		copy(r.to, r.from)
	}
	return err
}
