package sim

import "github.com/fencepost-gpu/fencepost/cuda/driver"

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
	d.mark(st)
	g.last, g.clock = record{s: st, seq: st.seq}, st.now()
	return nil
}

// replay enqueues one operation as if it had been called now.
func (d *Device) replay(s *stream, w *recorded) {
	o := newOp(w.op.kind, w.op.name)
	o.dst, o.src, o.n, o.value, o.hostBytes = w.op.dst, w.op.src, w.op.n, w.op.value, w.op.hostBytes
	for _, r := range w.ranges {
		o.uses = d.resolve(o.uses, r, w.op.exec.args)
	}
	if w.op.kind != opLaunch {
		o.exec.touches = append(o.exec.touches, w.ranges...)
	} else {
		o.kernel, o.exec.d = w.op.kernel, d
		o.exec.Grid, o.exec.Block = w.op.exec.Grid, w.op.exec.Block
		o.exec.args = append(o.exec.args, w.op.exec.args...)
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
