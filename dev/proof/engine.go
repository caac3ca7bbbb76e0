package proof

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/dev/proof/device"
	"github.com/fencepost-gpu/fencepost/dev/proof/oracle"
	"github.com/fencepost-gpu/fencepost/dev/proof/program"
	"github.com/fencepost-gpu/fencepost/internal/fence"
)

// EngineRunner runs programs straight on the fence engine, package internal/fence: the ready points
// of allocations, launches, recorded uses and the waits of frees, without the resource around them.
// What arrives at the device is compared, step by step, with what a [Planner] says must:
// the same waits, for the same points of the streams. That is so much cheaper than the resource and
// a judgement of the whole that larger programs can be run. It is not safe for concurrent use.
type EngineRunner struct {
	planner *Planner
	device  *device.Device
	counts  fence.Counts
	order   *fence.Order
	streams []*fence.Stream
	blocks  [program.MaxBlocks]engineBlock
	live    program.Set
	// launches are by operation.
	launches []engineLaunch
	behind   fence.Plan // of the free or the recorded use that is under way
	held     []*fence.Frontier
	// marks is how many the launch that was prepared last was timed by.
	marks marks
}

// marks counts them: what times a launch orders nothing.
type marks int

// Mark counts one.
func (m *marks) Mark(driver.Stream) { *m++ }

// engineBlock is what a resource keeps of one.
type engineBlock struct {
	history fence.History
	home    uint8
	// waits: its free waits for launches.
	waits bool
}

type engineLaunch struct {
	intent core.Intent
	uses   [program.MaxBlocks]core.PreparedUse
	point  *fence.Point
	own    bool // has what the stream has for one launch at a time
}

// NewEngineRunner returns a runner with so many streams. It must be closed.
func NewEngineRunner(streams int) *EngineRunner {
	r := &EngineRunner{planner: NewPlanner(streams), device: device.New()}
	r.order = fence.NewOrder(r.device, false)
	for i := range streams {
		s := new(fence.Stream)
		r.order.Add(s, driver.Stream(i), false, &r.counts)
		r.streams = append(r.streams, s)
	}
	for i := range r.blocks {
		r.blocks[i].history = fence.NewHistory()
	}
	return r
}

// ErrWaits is that a step made other waits than it must.
var ErrWaits = errors.New("these are not the waits that must be")

// CheckAll checks a program under every schedule, and stops at the first failure. Of
// programs that differ in the order of their first allocations alone it runs one,
// and counts all: to the engine they are the same.
func (r *EngineRunner) CheckAll(p program.Program, goroutines int, total *Total) (err error) {
	alike, first := p.Orbit()
	if !first {
		return nil
	}
	total.Programs += uint64(alike)
	Explorer{Goroutines: goroutines, Engine: true}.Each(p, func(s Schedule) bool {
		total.Schedules++
		err = r.Check(p, s)
		total.Waits += uint64(r.device.Calls.Waits)
		return err == nil
	})
	return err
}

// Check runs a program under a schedule, and frees what it leaves.
func (r *EngineRunner) Check(p program.Program, steps Schedule) error {
	for _, f := range r.held {
		f.Release()
	}
	r.held = r.held[:0]
	r.planner.Reset()
	r.device.Reset()
	r.live = 0
	for len(r.launches) < len(p) {
		r.launches = append(r.launches, engineLaunch{})
	}
	for _, s := range steps {
		if err := r.take(p[s.Op], s); err != nil {
			return fmt.Errorf("program:  %v\nschedule: %v\nstep:     %v\nerror:    %w\n%v", p, steps, Schedule{s}, err, r.History())
		}
	}
	for b := range r.live.All() {
		if err := r.take(program.Op{Kind: program.Free, Block: b}, Step{Op: uint8(len(p))}); err != nil {
			return fmt.Errorf("program:  %v\nschedule: %v\nerror:    %w: the last free of block %d\n%v", p, steps, err, b, r.History())
		}
	}
	return nil
}

// History is what the last run had to come to.
func (r *EngineRunner) History() *oracle.History { return r.planner.History }

// take takes a step and compares what came of it.
func (r *EngineRunner) take(o program.Op, s Step) error {
	before := r.device.History.Len()
	must := r.planner.Take(o, s)
	if o.Kind == program.Launch && s.Phase == Begin {
		r.planner.Take(o, Step{s.Op, Enqueue})
	}
	if err := r.call(o, s, must); err != nil {
		return err
	}
	want, got := r.planner.Nodes(), r.device.History.Nodes()
	if len(want) != len(got) {
		return fmt.Errorf("%w: there came\n%v", ErrWaits, r.device.History)
	}
	for i := before; i < len(want); i++ {
		if n := &want[i]; got[i].Kind != n.Kind || n.Kind == oracle.Wait && !hasWait(got[before:], n) {
			return fmt.Errorf("%w: #%d is missing, and there came\n%v", ErrWaits, i, r.device.History)
		}
	}
	return nil
}

// hasWait reports whether nodes have a wait, wherever: which of them is queued first does not matter.
func hasWait(nodes []oracle.Node, wait *oracle.Node) bool {
	return slices.ContainsFunc(nodes, func(n oracle.Node) bool {
		return n.Kind == oracle.Wait && n.Stream == wait.Stream && n.From == wait.From
	})
}

func (r *EngineRunner) call(o program.Op, s Step, must *Outcome) error {
	switch {
	case o.Kind == program.Alloc:
		return r.alloc(o, s)
	case o.Kind == program.Free:
		return r.free(o.Block, s, must)
	case o.Kind == program.Sync:
		return r.synchronize(o.Stream)
	case o.Kind == program.Record && s.Phase == Begin:
		r.put(o, s, oracle.Begin, oracle.Work)
		return nil
	case o.Kind == program.Record:
		return r.record(o, s)
	case s.Phase == End:
		return r.end(o, s)
	}
	return r.prepare(o, s, must)
}

// put puts the host's side of a launch or a use on its stream.
func (r *EngineRunner) put(o program.Op, s Step, kinds ...oracle.Kind) {
	for _, kind := range kinds {
		r.device.Put(node(kind, o, s.Op, o.Stream))
	}
}

const lease core.StreamID = 1

func (r *EngineRunner) alloc(o program.Op, step Step) error {
	s := r.streams[o.Stream]
	s.Lock()
	defer s.Unlock()
	ready, reserve, err := s.PointForAllocation(lease)
	if err != nil {
		return err
	}
	r.device.Put(oracle.Node{Kind: oracle.Alloc, Stream: o.Stream, Op: int16(step.Op), Block: o.Block})
	ready = s.ConfirmReadyPoint(ready, reserve)
	if s.Open() > 0 {
		if err := s.Flush(); err != nil {
			return err
		}
	}
	b := &r.blocks[o.Block]
	b.home, b.waits = o.Stream, false
	b.history.Begin(ready, core.SpanRef{})
	r.live |= 1 << o.Block
	return nil
}

func (r *EngineRunner) prepare(o program.Op, s Step, must *Outcome) error {
	l := &r.launches[s.Op]
	let, err := r.announce(o, l, int16(s.Op))
	if err != nil {
		return err
	}
	if refused := s.Phase == Refused; let == refused || refused != (must.Holder >= 0) {
		return fmt.Errorf("%w: a launch is refused that must not be, or let through", ErrAnswer)
	}
	if !let {
		l.point.Withdraw()
		l.point.End()
		r.streams[o.Stream].LeaveOwn(l.own)
		return nil
	}
	r.marks = 0
	if err := l.point.Fence(&l.intent, &r.marks); err != nil {
		return err
	}
	if int(r.marks) != 1+len(l.intent.Waited) {
		return fmt.Errorf("%w: a launch with %d waits is timed by %d marks before its work", ErrAnswer, len(l.intent.Waited), r.marks)
	}
	if r.put(o, s, oracle.Begin); o.Kind != program.Abort {
		r.put(o, s, oracle.Work)
	}
	return nil
}

// announce announces a launch on its stream and on its blocks; let is false if one of
// these refuses.
func (r *EngineRunner) announce(o program.Op, l *engineLaunch, op int16) (let bool, err error) {
	in := &l.intent
	in.ID, in.Stream, in.Waited, in.Uses = uint64(op)+1, lease, in.Waited[:0], l.uses[:o.Uses().Len()]
	s := r.streams[o.Stream]
	l.own = s.EnterOwn()
	if l.point, err = s.Announce(in, l.own); err != nil {
		return false, err
	}
	i := 0
	for b := range o.Uses().All() {
		u := &in.Uses[i]
		u.Waits, u.Access = 0, access(o, b)
		var holder *fence.Access
		if u.Elided, holder = r.blocks[b].history.Announce(l.point, u.Access, i); holder != nil {
			l.point.NotAnnounced(len(in.Uses) - i)
			return false, nil
		}
		i++
	}
	return true, nil
}

func (r *EngineRunner) end(o program.Op, s Step) error {
	l := &r.launches[s.Op]
	if o.Kind == program.Abort {
		l.point.Withdraw()
	} else {
		r.put(o, s, oracle.End)
		if err := l.point.Finish(&l.intent); err != nil {
			return err
		}
	}
	watched := l.point.End()
	r.streams[o.Stream].LeaveOwn(l.own)
	for at := range o.Uses().All() {
		b := &r.blocks[at]
		if !b.waits {
			continue
		}
		open := len(r.planner.Users(at)) > 0
		if !watched || open != b.history.HasOpen() {
			return fmt.Errorf("%w: block %d waited for a launch that has ended; others are open: %v", ErrAnswer, at, open)
		}
		if !open {
			if err := r.freeNow(b, at, s); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *EngineRunner) record(o program.Op, step Step) error {
	s := r.streams[o.Stream]
	s.Lock()
	defer s.Unlock()
	if err := s.Flush(); err != nil {
		return err
	}
	r.put(o, step, oracle.End)
	p, err := s.Record(lease)
	if err != nil {
		return err
	}
	r.blocks[o.Block].history.AddRecorded(p, &r.behind)
	r.behind.Drop()
	p.Release()
	return nil
}

func (r *EngineRunner) synchronize(stream uint8) error {
	s := r.streams[stream]
	r.device.Execute(stream)
	s.Lock()
	p, err := s.Record(lease)
	s.Unlock()
	if err != nil {
		return err
	}
	defer p.Release()
	_, err = s.QueryCompleted(p)
	return err
}

func (r *EngineRunner) free(block uint8, s Step, must *Outcome) error {
	b := &r.blocks[block]
	r.live &^= 1 << block
	if b.waits = b.history.Watch(); b.waits != (len(must.Users) > 0) {
		return fmt.Errorf("%w: %d launches are open over block %d, and the engine says %v", ErrAnswer, len(must.Users), block, b.waits)
	}
	if b.waits {
		return nil
	}
	return r.freeNow(b, block, s)
}

func (r *EngineRunner) freeNow(b *engineBlock, at uint8, step Step) error {
	s := r.streams[b.home]
	b.waits = false
	var held *fence.Frontier
	if !b.history.UsedOnlyOn(s) {
		b.history.PlanFree(s, &r.behind)
		s.Lock()
		held = r.behind.Frontier(s)
		s.Unlock()
		r.behind.Drop()
	}
	b.history.Release()
	if held != nil { // no stream waits for it
		r.held = append(r.held, held)
		return nil
	}
	r.device.Put(oracle.Node{Kind: oracle.Free, Stream: b.home, Op: int16(step.Op), Block: at})
	return nil
}

// Close looks whether every event comes back.
func (r *EngineRunner) Close() error {
	for _, f := range r.held {
		f.Release()
	}
	for _, s := range r.streams {
		s.Lock()
		err := s.CloseEvents()
		s.Unlock()
		if err != nil {
			return err
		}
	}
	if n := r.device.Events(); n != 0 {
		return fmt.Errorf("%w: %d", ErrEvents, n)
	}
	return nil
}
