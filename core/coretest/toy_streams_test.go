package coretest

import (
	"slices"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
)

// enqueue puts op on the stream's queue; d.mu must be held.
func (d *toy) enqueue(stream core.StreamID, op func()) {
	ops, ok := d.streams[stream]
	if !ok {
		ops = make(chan func(), 1<<12)
		d.streams[stream] = ops
		go func() {
			for op := range ops {
				op()
			}
		}()
	}
	ops <- op
}

func (d *toy) record(stream core.StreamID) chan struct{} {
	done := make(chan struct{})
	d.enqueue(stream, func() { close(done) })
	return done
}

func (d *toy) wait(stream core.StreamID, done chan struct{}) {
	d.enqueue(stream, func() { <-done })
}

func (d *toy) Write(stream core.StreamID, ptr uint64, src []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	src = slices.Clone(src)
	d.enqueue(stream, func() { copy(d.arena[ptr-toyBase:], src) })
	return nil
}

func (d *toy) Read(stream core.StreamID, ptr uint64, dst []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.enqueue(stream, func() { copy(dst, d.arena[ptr-toyBase:]) })
	return nil
}

func (d *toy) Stall(stream core.StreamID) func() {
	d.mu.Lock()
	defer d.mu.Unlock()
	gate := make(chan struct{})
	d.wait(stream, gate)
	return sync.OnceFunc(func() { close(gate) })
}

func (d *toy) Sync(stream core.StreamID) error {
	d.mu.Lock()
	done := d.record(stream)
	d.mu.Unlock()
	<-done
	return nil
}
