package cuda

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/fence"
	"github.com/fencepost-gpu/fencepost/internal/legible"
	"github.com/fencepost-gpu/fencepost/internal/refuse"
)

// unlessCapturing is err, or nil if that is just a capture under way.
func unlessCapturing(err error) error {
	if errors.Is(err, fence.ErrCapturing) {
		return nil
	}
	return err
}

// enterUncaptured is enter for work that must not go into a graph: until the
// caller leaves, no capture of the runtime's begins on the stream.
func (t *streamTable) enterUncaptured(op string, id core.StreamID) (*stream, error) {
	s, err := t.enter(op, id)
	if err == nil {
		if err = s.RefuseCaptured(op, id); err != nil {
			s.Leave()
			s = nil
		}
	}
	return s, err
}

// mayRelease refuses to give back a stream that is capturing: the next taker's
// work would go into the graph, or what it is told of it be wrong. An adopted
// stream with launches open is refused as well, and again when its id is off.
// It takes the stream's lock only to end a capture that could not be ended: a
// capture that begins meanwhile sees that the lease is released, or is seen
// here.
func (l *Lease) mayRelease() error {
	s := l.stream
	if l.adopted {
		if err := l.awaitOpen(); err != nil {
			return err
		}
	}
	if s.stuck.Load() {
		if err := l.endStuck(); err != nil {
			return err
		}
	}
	capturing := s.Capturing()
	if !capturing { // it may have begun on the handle
		capturing, _ = s.QueryCapturing() // who does not look at the error of a Release must not lose the stream
	}
	if capturing {
		return &core.StreamMisuseError{Op: "Release", Stream: l.id, Reason: fmt.Sprintf("stream %v is capturing: end the capture first. One that the driver would not end is ended by releasing the lease that it began on", l.id)}
	}
	return nil
}

func (l *Lease) endStuck() error {
	l.stream.Lock()
	defer l.stream.Unlock()
	return l.endStuckLocked()
}

// Capture records what record enqueues on the stream that it is given, and does
// not run it: the graph that comes of it does, as often as it is launched.
// uses are the blocks that the work touches, as for a launch; each launch of the
// graph is fenced for them, and refused if one was freed. name is that of the
// launches in traces, logs and findings.
//
// record enqueues raw, with Kernel.Enqueue or the driver: the stream is refused
// for launches, allocations, copies and synchronisations of the runtime's until
// Capture returns, with a [core.StreamMisuseError] that leaves the capture
// intact. Blocks may be freed meanwhile: those that were allocated on the stream
// when the capture has ended. record may be called on any thread and use
// several; streams that it draws in, by an event and a wait, are named as forks
// and kept out of in the same way. Host memory that is copied from or to must
// stay in place and untouched for as long as the graph is launched.
//
// An error of record is returned and there is no graph; after a panic there is
// none either. Other errors are [core.StreamMisuseError] for a lease that is
// released, capturing, named twice, or has a launch announced, and for a block of
// another device, [core.InvalidRequestError] for a fork that is nil,
// [core.UseAfterFreeError] for a block that is not live, and [core.DriverError], among them those of a capture
// that record has invalidated. It blocks as record does, and while the
// driver builds the graph.
func (l *Lease) Capture(ctx context.Context, name string, uses []core.Use, record func(driver.Stream) error, forks ...*Lease) (*Graph, error) {
	if err := cmp.Or(needLease("Capture", l), refuse.NoContext(ctx, "Capture")); err != nil {
		return nil, err
	}
	if record == nil {
		return nil, refuse.Nil("Capture", "record", "give a function that enqueues the work to be captured")
	}
	for _, fork := range forks {
		if err := needLease("Capture", fork); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("Capture: %w", err)
	}
	if err := l.checkCaptured(uses); err != nil {
		return nil, err
	}
	if err := l.checkForks(forks); err != nil {
		return nil, err
	}
	if err := l.beginCapture(forks); err != nil {
		return nil, err
	}
	returned := false
	defer func() {
		if !returned { // a panic goes on to the caller
			exec, _ := l.endCapture()
			l.pool.discard(exec)
		}
	}()
	recordErr := record(l.Handle())
	returned = true
	exec, err := l.endCapture()
	if err := errors.Join(recordErr, err); err != nil {
		l.pool.discard(exec)
		return nil, err
	}
	return newGraph(l.pool.drv, name, uses, exec), nil
}

// checkCaptured refuses uses for which no launch of the graph could be fenced.
func (l *Lease) checkCaptured(uses []core.Use) error {
	for _, u := range uses {
		if u.Block.Generation == core.NoBytes {
			continue
		}
		if !u.Access.Valid() {
			return &core.InvalidRequestError{Op: "Capture", Field: "Access", Reason: fmt.Sprintf("%v of block %v: say Read, Write or ReadWrite", u.Access, u.Block)}
		}
		if ordinal := l.pool.drv.Ordinal(); u.Block.Ordinal != ordinal {
			return &core.StreamMisuseError{Op: "Capture", Block: u.Block, Stream: l.id,
				Reason: fmt.Sprintf("the block belongs to device %d, the stream to device %d: capture on a stream of the block's device", u.Block.Ordinal, ordinal)}
		}
		b := l.pool.table.lookup(u.Block)
		if b == nil {
			return fmt.Errorf("block %v was not allocated by the resource of this stream pool, or it was freed: %w", u.Block,
				&core.UseAfterFreeError{Op: "Capture", Generation: u.Block.Generation, Block: u.Block, State: core.Freed})
		}
		b.mu.Lock()
		err := b.check("Capture", u.Block, l.id)
		b.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// checkForks refuses forks that are no leases, or no others.
func (l *Lease) checkForks(forks []*Lease) error {
	for i, f := range forks {
		switch {
		case f == nil:
			return &core.InvalidRequestError{Op: "Capture", Field: "forks", Reason: fmt.Sprintf("fork %d is nil: name the leases of the streams that are drawn in", i)}
		case f == l || slices.Contains(forks[:i], f):
			return &core.StreamMisuseError{Op: "Capture", Stream: f.id, Reason: fmt.Sprintf("stream %v is named twice: name each fork once, and not the lease that captures", f.id)}
		}
	}
	return nil
}

// beginCapture takes the streams out of the runtime's hands and begins.
func (l *Lease) beginCapture(forks []*Lease) error {
	var entered []*stream
	defer func() { leaveCapture(entered) }()
	for _, each := range append([]*Lease{l}, forks...) {
		if err := each.enterCapture(l.pool); err != nil {
			return err
		}
		entered = append(entered, each.stream)
	}
	s := l.stream
	s.Lock()
	defer s.Unlock()
	if err := s.drv.StreamBeginCapture(s.Handle()); err != nil {
		return err
	}
	s.captured, entered = entered, nil
	return nil
}

func leaveCapture(streams []*stream) {
	for _, s := range streams {
		s.LetIn()
	}
}

const noLease = "is not leased any more: capture under a lease that is held"

// enterCapture makes everybody else keep out of the stream. A deferred event is
// recorded first, so that the runtime has nothing left to enqueue.
func (l *Lease) enterCapture(pool *StreamPool) error {
	s := l.stream
	s.Lock()
	defer s.Unlock()
	refuse := func(reason string) error {
		return &core.StreamMisuseError{Op: "Capture", Stream: l.id, Reason: fmt.Sprintf("stream %v %s", l.id, reason)}
	}
	if l.pool != pool {
		return refuse("is of another pool: the streams of one capture belong to one device")
	}
	if l.released.Load() {
		return refuse(noLease)
	}
	if err := l.endStuckLocked(); err != nil {
		return err
	}
	if s.Capturing() {
		return refuse("is capturing already")
	}
	if capturing, err := s.QueryCapturing(); err != nil {
		return err
	} else if capturing {
		return refuse("is capturing already, and not through Lease.Capture: end that capture")
	}
	if err := s.Flush(); err != nil {
		return err
	}
	s.KeepOut()
	if l.released.Load() { // again, behind the flag: a Release sets this and then asks the flag
		s.LetIn()
		return refuse(noLease)
	}
	if s.Open() > 0 {
		s.LetIn()
		return refuse("has launches announced and not finished, or work is being enqueued there: finish or abort it before a capture")
	}
	return nil
}

// endCapture ends the capture of the lease.
func (l *Lease) endCapture() (driver.Graph, error) {
	l.stream.Lock()
	defer l.stream.Unlock()
	exec, err := l.endCaptureLocked()
	return exec, l.stream.explainEnd(err)
}

// explainEnd adds to an error of the end of a capture what it means; the stream must
// be locked.
func (s *stream) explainEnd(err error) error {
	var d *core.DriverError
	if !errors.As(err, &d) {
		return err
	}
	if s.stuck.Load() {
		return fmt.Errorf("the capture has not ended: its streams stay out of use until the Release of the lease, which tries again: %w", err)
	}
	switch d.Code {
	case driver.CaptureInvalidated, driver.CaptureUnjoined, driver.CaptureUnmatched, driver.CaptureIsolation:
		return fmt.Errorf("what was captured cannot be launched: something that cannot be captured was asked for, or a stream that was drawn in is not waited for: %w", err)
	}
	return fmt.Errorf("no graph came of the capture: %w", err)
}

// endCaptureLocked ends the capture of the lease's stream, at the second try if need
// be. One that cannot be ended stays, and the stream with it, until Release or
// another Capture has ended it; the stream's lock must be held.
func (l *Lease) endCaptureLocked() (driver.Graph, error) {
	s := l.stream
	exec, err := s.drv.StreamEndCapture(s.Handle())
	if err != nil && s.mayCapture() {
		if again, againErr := s.drv.StreamEndCapture(s.Handle()); againErr == nil {
			l.pool.discard(again)
		}
		if s.mayCapture() {
			s.stuck.Store(true)
			return 0, err
		}
	}
	leaveCapture(s.captured)
	s.captured = nil
	s.stuck.Store(false)
	return exec, err
}

// mayCapture reports whether the driver's capture may not have ended.
func (s *stream) mayCapture() bool {
	capturing, err := s.QueryCapturing()
	return capturing || err != nil && !errors.Is(err, core.ErrSticky)
}

// endStuckLocked ends a capture that could not be ended before; the stream's lock
// must be held.
func (l *Lease) endStuckLocked() error {
	if !l.stream.stuck.Load() {
		return nil
	}
	exec, err := l.endCaptureLocked()
	l.pool.discard(exec)
	if l.stream.stuck.Load() {
		return l.stream.explainEnd(err)
	}
	return nil // what came of it was told then
}

// Graph is work that was captured once (see [Lease.Capture]) and can be launched
// many times. It remembers the blocks that it was captured over, by their
// generations: a launch after one of them was freed is refused, although the
// addresses in the graph may be another owner's memory by then. It keeps
// no block alive. A graph must be closed: the driver keeps one that is not
// until the device's context ends. All methods are safe for concurrent use.
type Graph struct {
	drv  driver.Driver
	name string
	uses []core.Use

	// mu is held over the driver's calls, which must not be concurrent for
	// one graph.
	mu   sync.Mutex
	exec driver.Graph // 0 after Close
}

func newGraph(drv driver.Driver, name string, uses []core.Use, exec driver.Graph) *Graph {
	return &Graph{drv: drv, name: names.Bound(name), uses: slices.Clone(uses), exec: exec}
}

// Launch enqueues the graph's work on the lease's stream, fenced for the blocks
// that it was captured over like any launch: a conflicting launch that is
// announced on another stream is waited for until ctx ends. The driver orders
// it behind the last launch of the same graph, on whatever stream that was. It
// returns when the work is enqueued. Errors are those of [core.Runtime.Launch],
// among them [core.UseAfterFreeError] if a block was freed since; one that
// matches [core.ErrClosed] after Close; and [core.StreamMisuseError] for a lease of
// another device. A nil runtime or lease is a [core.InvalidRequestError].
func (g *Graph) Launch(ctx context.Context, rt core.AnyRuntime, on *Lease) error {
	if g == nil {
		return missingHandle("Graph.Launch", "graph")
	}
	r, err := refuse.NoRuntime("Graph.Launch", rt)
	if err != nil {
		return err
	}
	if err := needLease("Graph.Launch", on); err != nil {
		return err
	}
	if on.pool.drv != g.drv {
		return &core.StreamMisuseError{Op: "Graph.Launch", Stream: on.id,
			Reason: fmt.Sprintf("the graph %s was captured on another device: capture it there", legible.Value(g.name))}
	}
	return r.LaunchNamed(ctx, g.name, on.ID(), g.uses, func(context.Context) error {
		return g.enqueue(on.Handle())
	})
}

func (g *Graph) enqueue(s driver.Stream) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.exec == 0 {
		return core.NotEnqueued(fmt.Errorf("Graph.Launch: the graph %s is %w", legible.Value(g.name), core.ErrClosed))
	}
	return refusedUnlessSticky(g.drv.GraphLaunch(g.exec, s))
}

// Close gives the graph back to the driver; launches that were enqueued still
// run. A second Close is an error that matches [core.ErrClosed]; after a
// driver's error it may be called again. It may block in the driver.
func (g *Graph) Close() error {
	if g == nil {
		return missingHandle("Graph.Close", "graph")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.exec == 0 {
		return fmt.Errorf("Graph.Close: the graph %s is %w", legible.Value(g.name), core.ErrClosed)
	}
	if err := g.drv.GraphDestroy(g.exec); err != nil {
		return err
	}
	g.exec = 0
	return nil
}

// discard gives up a graph that is not returned to the caller, or keeps it for Close.
func (p *StreamPool) discard(exec driver.Graph) {
	if exec == 0 || p.drv.GraphDestroy(exec) == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.graphs = append(p.graphs, exec)
}

// destroyGraphs gives back what discard could not.
func (p *StreamPool) destroyGraphs() (err error) {
	p.mu.Lock()
	graphs := p.graphs
	p.graphs = nil
	p.mu.Unlock()
	for _, exec := range graphs {
		if destroyErr := p.drv.GraphDestroy(exec); destroyErr != nil {
			err = destroyErr
			p.mu.Lock()
			p.graphs = append(p.graphs, exec)
			p.mu.Unlock()
		}
	}
	return err
}
