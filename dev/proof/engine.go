package proof

import (
	"errors"
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/dev/proof/oracle"
	"github.com/fencepost-gpu/fencepost/dev/proof/program"
	"github.com/fencepost-gpu/fencepost/internal/fence"
)

// EngineRunner runs programs straight on the fence engine, package internal/fence: the ready points
// of allocations, launches, recorded uses and the waits of frees, without the resource around them.
// What the engine asks of its port is compared, step by step, with the waits that package oracle
// says each step must have ([oracle.Plan]): the same ones, for the same points of the streams. That
// is so much cheaper than the resource and a judgement of the whole that larger programs can be
// run. It is not safe for concurrent use.
type EngineRunner struct {
	plan    *oracle.Plan
	port    enginePort
	counts  fence.Counts
	order   *fence.Order
	streams []*fence.Stream
	blocks  [program.MaxBlocks]engineBlock
	// launches are by operation.
	launches []engineLaunch
	behind   fence.Plan // of the free or the recorded use that is under way
	waits    uint64     // that were made in all
}

// engineBlock is what a resource keeps of one.
type engineBlock struct {
	history fence.History
	home    uint8
	live    bool
	// waits: its free waits for launches.
	waits bool
}

type engineLaunch struct {
	intent core.Intent
	uses   [program.MaxBlocks]core.PreparedUse
	point  *fence.Point
	node   oracle.Node
}

// NewEngineRunner returns a runner with so many streams. It must be closed.
func NewEngineRunner(streams int) *EngineRunner {
	r := &EngineRunner{plan: oracle.NewPlan(streams)}
	r.port.plan = r.plan
	r.order = fence.NewOrder(&r.port, false)
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
	before := r.waits
	Explorer{Goroutines: goroutines, Engine: true}.Each(p, func(s Schedule) bool {
		total.Schedules++
		err = r.Check(p, s)
		return err == nil
	})
	total.Waits += r.waits - before
	return err
}

// Check runs a program under a schedule, and frees what it leaves.
func (r *EngineRunner) Check(p program.Program, steps Schedule) error {
	r.plan.Reset()
	r.port.forget()
	for len(r.launches) < len(p) {
		r.launches = append(r.launches, engineLaunch{})
	}
	made := uint8(0)
	for _, s := range steps {
		if err := r.take(p[s.Op], s); err != nil {
			return r.failure(p, steps, fmt.Sprintf("%v", Schedule{s}), err)
		}
		if p[s.Op].Kind == program.Alloc {
			made++
		}
	}
	for b := range made {
		if r.blocks[b].live {
			if err := r.free(b, int16(len(p))); err != nil {
				return r.failure(p, steps, fmt.Sprintf("the last free of block %d", b), err)
			}
		}
	}
	return nil
}

func (r *EngineRunner) failure(p program.Program, steps Schedule, at string, err error) error {
	return fmt.Errorf("program:  %v\nschedule: %v\nstep:     %s\nerror:    %w\n%v", p, steps, at, err, r.plan.History)
}

// History is what the last run came to.
func (r *EngineRunner) History() *oracle.History { return r.plan.History }

func (r *EngineRunner) take(o program.Op, s Step) error {
	op := int16(s.Op)
	switch o.Kind {
	case program.Alloc:
		return r.alloc(o, op)
	case program.Free:
		return r.free(o.Block, op)
	case program.Sync:
		return r.synchronize(o.Stream)
	case program.Record:
		if s.Phase == End {
			return r.record(o, op)
		}
		r.plan.Use(oracle.Node{Stream: o.Stream, Op: op, Writes: 1 << o.Block})
		return nil
	}
	if s.Phase == End {
		return r.end(o, op)
	}
	return r.prepare(o, op, s.Phase == Refused)
}

const lease core.StreamID = 1

func (r *EngineRunner) alloc(o program.Op, op int16) error {
	s := r.streams[o.Stream]
	r.begin()
	s.Lock()
	defer s.Unlock()
	ready, reserve, err := s.PointForAllocation(lease)
	if err != nil {
		return err
	}
	from := r.plan.Len()
	r.plan.Alloc(oracle.Node{Stream: o.Stream, Op: op, Block: o.Block, Cells: 1 << o.Block})
	ready = s.ConfirmReadyPoint(ready, reserve)
	if s.Open() > 0 {
		if err := s.Flush(); err != nil {
			return err
		}
	}
	b := &r.blocks[o.Block]
	b.home, b.live, b.waits = o.Stream, true, false
	b.history.Begin(ready, core.SpanRef{})
	return r.compare(from)
}

func (r *EngineRunner) prepare(o program.Op, op int16, refused bool) error {
	l := &r.launches[op]
	l.node = oracle.Node{Stream: o.Stream, Op: op, Reads: oracle.Set(o.Reads), Writes: oracle.Set(o.Writes), Aborted: o.Kind == program.Abort}
	r.begin()
	let, err := r.announce(o, l, op)
	if err != nil {
		return err
	}
	if let == refused || refused != (r.plan.Conflict(l.node) >= 0) {
		return fmt.Errorf("%w: a launch is refused that must not be, or let through", ErrAnswer)
	}
	from := r.plan.Len()
	if refused {
		l.point.Withdraw()
		l.point.End()
		return r.compare(from)
	}
	if err := l.point.Fence(&l.intent); err != nil {
		return err
	}
	r.plan.Prepare(l.node)
	if err := r.compare(from); err != nil {
		return err
	}
	if l.node.Kind = oracle.Work; !l.node.Aborted {
		r.plan.Add(l.node)
	}
	return nil
}

// announce announces a launch on its stream and on its blocks; let is false if one of
// these refuses.
func (r *EngineRunner) announce(o program.Op, l *engineLaunch, op int16) (let bool, err error) {
	in := &l.intent
	in.ID, in.Stream, in.Waited, in.Uses = uint64(op)+1, lease, in.Waited[:0], l.uses[:o.Uses().Len()]
	s := r.streams[o.Stream]
	s.Enter()
	if l.point, err = s.Announce(in); err != nil {
		return false, err
	}
	i := 0
	for b := range o.Uses().All() {
		u := &in.Uses[i]
		u.Waits, u.Elided, u.Access = 0, 0, core.Read
		if o.Writes.Has(b) {
			u.Access = core.Write
		}
		if r.blocks[b].history.Announce(l.point, u.Access, i) != nil {
			l.point.ReleaseMany(int32(len(in.Uses) - i))
			return false, nil
		}
		i++
	}
	return true, nil
}

func (r *EngineRunner) end(o program.Op, op int16) error {
	l := &r.launches[op]
	r.begin()
	if o.Kind == program.Abort {
		r.plan.Abort(op)
		l.point.Withdraw()
	} else {
		r.plan.End(op)
		if err := l.point.Finish(&l.intent); err != nil {
			return err
		}
	}
	watched := l.point.End()
	if err := r.compare(r.plan.Len()); err != nil {
		return err
	}
	for at := range o.Uses().All() {
		b := &r.blocks[at]
		if !b.waits {
			continue
		}
		open := len(r.plan.Users(at)) > 0
		if !watched || open != b.history.HasOpen() {
			return fmt.Errorf("%w: block %d waited for a launch that has ended; others are open: %v", ErrAnswer, at, open)
		}
		if !open {
			if err := r.freeNow(b, at, op); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *EngineRunner) record(o program.Op, op int16) error {
	s := r.streams[o.Stream]
	r.begin()
	s.Lock()
	defer s.Unlock()
	if err := s.Flush(); err != nil {
		return err
	}
	r.plan.Decide(o.Stream)
	r.plan.End(op)
	p, err := s.Record(lease)
	if err != nil {
		return err
	}
	r.blocks[o.Block].history.AddRecorded(p, &r.behind)
	r.behind.Drop()
	p.Release()
	return r.compare(r.plan.Len())
}

func (r *EngineRunner) synchronize(stream uint8) error {
	s := r.streams[stream]
	r.begin()
	s.Lock()
	p, err := s.Record(lease)
	s.Unlock()
	if err != nil {
		return err
	}
	defer p.Release()
	if _, err := s.QueryCompleted(p); err != nil {
		return err
	}
	r.plan.Decide(stream)
	r.plan.Learn(r.plan.History.Last(stream))
	return r.compare(r.plan.Len())
}

func (r *EngineRunner) free(block uint8, op int16) error {
	b := &r.blocks[block]
	b.live = false
	b.waits = b.history.Watch()
	if users := len(r.plan.Users(block)); users > 0 != b.waits {
		return fmt.Errorf("%w: %d launches are open over block %d, and the engine says %v", ErrAnswer, users, block, b.waits)
	}
	if b.waits {
		return nil
	}
	return r.freeNow(b, block, op)
}

func (r *EngineRunner) freeNow(b *engineBlock, at uint8, op int16) error {
	s := r.streams[b.home]
	b.waits = false
	r.begin()
	if !b.history.UsedOnlyOn(s) {
		b.history.PlanFree(s, &r.behind)
		s.Lock()
		err := r.behind.QueueFree(s)
		s.Unlock()
		r.behind.Drop()
		if err != nil {
			return err
		}
	}
	b.history.Release()
	from := r.plan.Len()
	r.plan.Free(oracle.Node{Stream: b.home, Op: op, Block: at, Cells: 1 << at})
	return r.compare(from)
}

// begin begins a step: no wait was made in it.
func (r *EngineRunner) begin() { r.port.waits = r.port.waits[:0] }

// compare demands that the waits which the plan has from a node on are those that were
// made, in whichever order.
func (r *EngineRunner) compare(from int) error {
	r.waits += uint64(len(r.port.waits))
	planned := 0
	nodes := r.plan.Nodes()
	for i := from; i < len(nodes); i++ {
		if nodes[i].Kind != oracle.Wait {
			continue
		}
		planned++
		if !r.made(nodes[i].Stream, nodes[i].From) {
			return fmt.Errorf("%w: stream %d does not wait for #%d; made were %v", ErrWaits, nodes[i].Stream, nodes[i].From, r.port.waits)
		}
	}
	if planned != len(r.port.waits) {
		return fmt.Errorf("%w: made were %v", ErrWaits, r.port.waits)
	}
	return nil
}

func (r *EngineRunner) made(stream uint8, from int32) bool {
	for _, w := range r.port.waits {
		if w.stream == stream && w.from == from {
			return true
		}
	}
	return false
}

// Close looks whether every event comes back.
func (r *EngineRunner) Close() error {
	for _, s := range r.streams {
		s.Lock()
		err := s.CloseEvents()
		s.Unlock()
		if err != nil {
			return err
		}
	}
	if r.port.alive != 0 {
		return fmt.Errorf("%w: %d", ErrEvents, r.port.alive)
	}
	return nil
}
