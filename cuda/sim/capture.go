package sim

import (
	"fmt"
	"maps"
	"slices"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// capture is a capture sequence: work that is recorded and not run. It begins
// on one stream and takes in each stream that waits for an event of it. The
// device's lock guards it.
type capture struct {
	origin *stream
	// work is in the order of the calls, which every order in the graph
	// agrees with.
	work []recorded
	// reached is what each stream of the capture has come to.
	reached map[*stream]reach
	invalid bool
}

// reach says how many operations of each stream of a capture something in it
// comes after.
type reach map[*stream]int

func (r reach) join(o reach) {
	for s, n := range o {
		r[s] = max(r[s], n)
	}
}

// recorded is one operation of a capture. What its addresses mean is looked up
// when the graph is launched.
type recorded struct {
	op     op
	ranges []Range
}

// record keeps o as work of the capture of s, and recycles it.
func (d *Device) record(m *method, s *stream, o *op, ranges []Range) error {
	defer o.recycle()
	c := s.capture
	if c.invalid {
		return invalidated(m)
	}
	kept := *o
	kept.uses, kept.exec.touches, kept.exec.args = nil, nil, slices.Clone(o.exec.args)
	c.work = append(c.work, recorded{kept, ranges})
	c.reached[s][s]++
	return nil
}

// recordCaptured makes e a point of the capture of s.
func (e *event) recordCaptured(m *method, s *stream) error {
	c := s.capture
	if c.invalid {
		return invalidated(m)
	}
	e.capture, e.reach = c, maps.Clone(c.reached[s])
	return nil
}

// waitCaptured is a wait of which at least one end is captured. A stream that
// is not takes part from now on, and none may wait for what is outside.
func (d *Device) waitCaptured(m *method, s *stream, e *event) error {
	into, of := s.capture, e.capture
	switch {
	case into != nil && into.invalid, of != nil && of.invalid:
		return invalidated(m)
	case into == nil && !of.open():
		return fault(m, driver.CapturedEvent, "the event was last recorded in a capture that has ended")
	case into == nil:
		s.capture = of
		of.reached[s] = maps.Clone(e.reach)
		return nil
	case into == of:
		of.reached[s].join(e.reach)
		return nil
	case of != nil && of.open():
		of.invalid = true
		return into.refuse(m, driver.CaptureMerge, "the event belongs to another capture")
	case of == nil && e.current == completed:
		return nil // an event never recorded
	}
	return into.refuse(m, driver.CaptureIsolation, "the event was recorded outside the capture")
}

// open reports whether the capture has not ended.
func (c *capture) open() bool { return c.origin != nil }

// refuse invalidates the capture.
func (c *capture) refuse(m *method, code int, detail string) error {
	c.invalid = true
	return fault(m, code, detail+"; the capture is invalidated")
}

func invalidated(m *method) error {
	return fault(m, driver.CaptureInvalidated, "end the capture with cuStreamEndCapture where it began")
}

// prohibited refuses what a capturing stream may not be asked for; nil if s is
// not capturing.
func (s *stream) prohibited(m *method) error {
	if s.capture == nil {
		return nil
	}
	return s.capture.refuse(m, driver.CaptureUnsupported, fmt.Sprintf("stream %#x is capturing", uint64(s.handle)))
}

// prohibitedAnywhere refuses what encompasses all streams.
func (d *Device) prohibitedAnywhere(m *method) (err error) {
	for _, s := range d.slots.owners {
		if refusal := s.prohibited(m); refusal != nil {
			err = refusal
		}
	}
	return err
}

// prohibited refuses to look at an event that stands for nothing that runs.
func (e *event) prohibited(m *method) error {
	switch {
	case e.capture == nil:
		return nil
	case !e.capture.open():
		return fault(m, driver.CapturedEvent, "the event was last recorded in a capture that has ended")
	}
	return e.capture.refuse(m, driver.CapturedEvent, "the event was last recorded in a capture")
}

// StreamBeginCapture makes work of s be recorded from now on. It does not
// block.
func (d *Device) StreamBeginCapture(h driver.Stream) error {
	s, err := d.lockStream(mStreamBeginCapture, h)
	if err != nil {
		return err
	}
	defer d.mu.Unlock()
	switch {
	case h == 0:
		return fault(mStreamBeginCapture, driver.CaptureUnsupported, "the legacy default stream cannot capture")
	case s.capture != nil:
		return fault(mStreamBeginCapture, driver.IllegalState, "the stream is capturing already")
	}
	s.capture = &capture{origin: s, reached: map[*stream]reach{s: {}}}
	return nil
}

// StreamCapturing reports whether s takes part in a capture. It does not
// block.
func (d *Device) StreamCapturing(h driver.Stream) (bool, error) {
	s, err := d.lockStream(mStreamCapturing, h)
	if err != nil {
		return false, err
	}
	defer d.mu.Unlock()
	return s.capture != nil, nil
}

// StreamEndCapture ends the capture that began on s. It does not block.
func (d *Device) StreamEndCapture(h driver.Stream) (driver.Graph, error) {
	m := mStreamEndCapture
	s, err := d.lockStream(m, h)
	if err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	c := s.capture
	switch {
	case c == nil:
		return 0, fault(m, driver.IllegalState, "the stream is not capturing")
	case c.origin != s:
		return 0, c.refuse(m, driver.CaptureUnmatched, "the capture began on another stream")
	}
	joined := c.end()
	switch {
	case c.invalid:
		return 0, fault(m, driver.CaptureInvalidated, "the capture was invalidated before it ended")
	case !joined:
		return 0, fault(m, driver.CaptureUnjoined, "a stream that was drawn in has work that the first does not wait for")
	}
	return d.graphs.put(&graph{work: c.work}), nil
}

// end takes all streams out of the capture and reports whether the first one
// comes after all of its work.
func (c *capture) end() (joined bool) {
	joined = true
	for s, r := range c.reached {
		joined = joined && c.reached[c.origin][s] >= r[s]
		s.capture = nil
	}
	c.origin = nil
	return joined
}

// graph is captured work that can be launched. Its branches run one after the
// other here, which is one of the orders that the graph allows: a race between
// two branches of one graph is not found.
type graph struct {
	work []recorded
	// last is the end of the last launch, clock its place.
	last  record
	clock stamp
}

// GraphLaunch enqueues the work of g on s, behind the last launch of g, and
// does not block. The oracle judges it as work of this launch: addresses mean
// the blocks that live there now.
func (d *Device) GraphLaunch(h driver.Graph, s driver.Stream) error {
	st, err := d.lockStream(mGraphLaunch, s)
	if err != nil {
		return err
	}
	defer d.mu.Unlock()
	g, err := d.graphs.named(mGraphLaunch, h)
	if err != nil {
		return err
	}
	if err := st.prohibited(mGraphLaunch); err != nil {
		return err
	}
	if g.last.s != nil && g.last.s != st {
		d.waitFor(st, g.last, g.clock)
	}
	for i := range g.work {
		d.replay(st, &g.work[i])
	}
	reached := d.mark(st, false)
	g.last, g.clock = record{s: st, seq: st.seq, moment: reached}, st.now()
	return nil
}

// replay enqueues one operation as if it had been called now.
func (d *Device) replay(s *stream, w *recorded) {
	o := newOp(w.op.kind, w.op.name)
	o.value, o.hostBytes = w.op.value, w.op.hostBytes
	if w.op.kind != opLaunch {
		o.exec.touches = append(o.exec.touches, w.ranges...)
	} else {
		o.kernel, o.exec.d, o.exec.takes = w.op.kernel, d, w.op.exec.takes
		o.exec.Grid, o.exec.Block = w.op.exec.Grid, w.op.exec.Block
		o.exec.args = append(o.exec.args, w.op.exec.args...)
	}
	for _, r := range w.ranges {
		o.uses = d.resolve(s, o, o.uses, r)
	}
	d.enqueue(s, o)
}

// GraphDestroy gives the handle back and does not block. What was launched
// runs.
func (d *Device) GraphDestroy(h driver.Graph) error {
	if err := d.begin(mGraphDestroy); err != nil {
		return err
	}
	defer d.mu.Unlock()
	_, err := d.graphs.take(mGraphDestroy, h)
	return err
}
