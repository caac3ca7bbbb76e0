package cuda

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/puddle/v2"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/deadline"
	"github.com/fencepost-gpu/fencepost/internal/legible"
	"github.com/fencepost-gpu/fencepost/internal/refuse"
	"github.com/fencepost-gpu/fencepost/internal/usercode"
)

// errPoolClosed is the refusal of a pool that Close has begun to end.
var errPoolClosed = fmt.Errorf("acquiring a stream: the pool is %w", core.ErrClosed)

// ErrNoStream is matched by the error of an Acquire when the pool is at its
// capacity and every stream is leased.
var ErrNoStream = errors.New("no stream is free")

// DefaultMaxStreams is how many streams a pool makes if not told otherwise.
const DefaultMaxStreams = 16

// StreamPool hands out exclusive leases on streams of one device. Streams are
// made when they are first needed and kept; a lease that was given back puts
// its stream at the next taker's disposal, in order behind the work that is
// still queued there. All methods are safe for concurrent use.
type StreamPool struct {
	drv   driver.Driver
	table *streamTable
	pool  *puddle.Pool[*stream]
	max   int32
	// onSticky does not change; it may be nil.
	onSticky func(op string, err error)
	// beginStep does not change; it may be nil.
	beginStep func(context.Context, oplog.Step) func(error)
	// deviceWork does not change; it may be nil. Of timeOneIn launches one is timed, none if it is zero.
	deviceWork oplog.DeviceWorkSink
	timeOneIn  uint32
	_          [64]byte // every launch reads what is above

	waiting, refused atomic.Int64
	// hasResource: a tracker keeps its books on the streams.
	hasResource atomic.Bool

	mu             sync.Mutex
	leased         map[core.StreamID]*Lease
	adoptedHandles map[driver.Stream]bool
	// backstop is where the frees of blocks go whose stream was given up.
	backstop *stream
	// closed: Close has begun, and no lease is granted. It is set with mu held.
	closed atomic.Bool
	// open ends then, by shut.
	open context.Context
	shut context.CancelFunc
	// ending are the streams that are on their way to be destroyed; busy are
	// those of them that had work to do at first.
	ending, busy int
	// destroyed: the pool's own streams are gone.
	destroyed bool
	// backing is held while the backstop is made.
	backing sync.Mutex
	// undestroyed are the streams that the driver would not synchronise with or destroy.
	undestroyed []*stream
	// graphs are those that the driver would not destroy and no caller has.
	graphs []driver.Graph
}

// StreamPoolConfig configures a [StreamPool].
type StreamPoolConfig struct {
	// Max is the largest number of streams; 0 means [DefaultMaxStreams].
	Max int
	// DeviceOrder makes streams wait on the device for work that the host has
	// seen done, too. It costs waits that nothing needs, and adopted streams
	// that were given up are remembered until Close. It is for tools such as
	// compute-sanitizer, to which work on a stream that was created after the
	// host synchronised with an event does not come after that event.
	DeviceOrder bool
	// OnSticky, if not nil, hears which call met a sticky error of the driver's:
	// the device is lost. It is called with no lock held, and before the call
	// returns the error.
	OnSticky func(op string, err error)
	// BeginStep, if not nil, shows copies and waits in traces; see telemetry.Steps. It
	// begins a step of ctx's trace and returns what ends it, once, with its error if it
	// failed; nil if the trace is not sampled. It must not block and must be safe for
	// concurrent use.
	BeginStep func(ctx context.Context, s oplog.Step) (end func(err error))
	// DeviceWork, if not nil, is told when the device did the launches of sampled traces, and one of TimeOneIn of the others on
	// each stream, if that is above zero, by a reap that sees them done. A launch that is timed takes the host and the device some
	// microseconds longer.
	DeviceWork oplog.DeviceWorkSink
	TimeOneIn  int
	// RememberReleased keeps the newest released blocks of each stream for the resource's Released:
	// 8192 in all, and at least 64 of each stream. It costs a free the copy of a block. A debugger
	// that names the block behind an address asks for it.
	RememberReleased bool
}

// NewStreamPool returns a pool over drv. No stream is made yet.
func NewStreamPool(drv driver.Driver, cfg StreamPoolConfig) (*StreamPool, error) {
	if err := needDriver("NewStreamPool", drv); err != nil {
		return nil, err
	}
	if cfg.Max < 0 {
		return nil, &core.InvalidRequestError{Op: "NewStreamPool", Field: "Max", Reason: fmt.Sprintf("%d streams: ask for at least 1, or 0 for the default of %d", cfg.Max, DefaultMaxStreams)}
	}
	if cfg.Max == 0 {
		cfg.Max = DefaultMaxStreams
	}
	p := &StreamPool{drv: drv, table: newStreamTable(drv, cfg.DeviceOrder, cfg.RememberReleased), max: int32(cfg.Max),
		onSticky: cfg.OnSticky, beginStep: cfg.BeginStep, deviceWork: cfg.DeviceWork,
		timeOneIn: uint32(min(max(cfg.TimeOneIn, 0), math.MaxUint32)),
		leased:    map[core.StreamID]*Lease{}, adoptedHandles: map[driver.Stream]bool{}}
	p.open, p.shut = context.WithCancel(context.Background())
	pool, err := puddle.NewPool(&puddle.Config[*stream]{
		Constructor: p.construct,
		Destructor:  func(s *stream) { _ = p.destruct(s) },
		MaxSize:     p.max,
	})
	if err != nil {
		return nil, fmt.Errorf("making the stream pool: %w", err)
	}
	p.pool = pool
	return p, nil
}

// claimFor makes the pool the one of a resource, which op is making.
func (p *StreamPool) claimFor(op string) error {
	if p.hasResource.CompareAndSwap(false, true) {
		return nil
	}
	return &core.InvalidRequestError{Op: op, Field: "streams", Reason: "the stream pool serves another resource: make a pool of streams for each resource"}
}

func (p *StreamPool) construct(context.Context) (*stream, error) {
	if p.closed.Load() {
		return nil, errPoolClosed
	}
	handle, err := p.drv.StreamCreate()
	if err != nil {
		return nil, err
	}
	return p.table.add(handle, false), nil
}

// destruct destroys a stream after its work is done: only then may its slot
// in the clocks go to another stream. One that it cannot be said of, or that the driver keeps, is
// kept for Close: frees go on naming it.
func (p *StreamPool) destruct(s *stream) error {
	err := p.makeIdle(s)
	defer s.Unlock()
	switch {
	case err == nil:
		s.LetGo()
	case !errors.Is(err, core.ErrSticky):
		p.keepUndestroyed(s)
		return err
	}
	if destroyed := p.drv.StreamDestroy(s.Handle()); destroyed != nil {
		p.keepUndestroyed(s)
		err = errors.Join(err, destroyed)
	}
	return err
}

// makeIdle synchronises a stream and returns with its lock held, which is not
// held meanwhile. Frees may be queued then: so it looks again. The error is the
// driver's refusal to synchronise.
func (p *StreamPool) makeIdle(s *stream) error {
	for {
		s.Lock()
		_ = s.Flush() // for waits on the device for what the host has seen
		seq, attempts := s.Here(), s.freeAttempts
		s.Unlock()
		err := p.drv.StreamSynchronize(s.Handle())
		s.Lock()
		if err != nil || seq == s.Seq() && attempts == s.freeAttempts {
			return err
		}
		s.Unlock()
	}
}

// Acquire leases a stream. If all are leased it waits for one until ctx ends;
// the error then matches both [ErrNoStream] and ctx's, and names the longest
// lease. If ctx ends before, or while a stream is made, the error matches ctx's alone.
// tag says what the lease is for. From when Close begins the error is
// one that matches [core.ErrClosed], for those who wait then too.
func (p *StreamPool) Acquire(ctx context.Context, tag core.Tag) (*Lease, error) {
	if err := cmp.Or(needPool("Acquire", p), refuse.NoContext(ctx, "Acquire")); err != nil {
		return nil, err
	}
	if p.closed.Load() {
		return nil, p.explain("Acquire", errPoolClosed)
	}
	if err := ctx.Err(); err != nil {
		p.refused.Add(1)
		return nil, fmt.Errorf("no stream was asked for: the context has ended: %w", err)
	}
	st := p.pool.Stat()
	if st.IdleResources() > 0 {
		if res, err := p.pool.TryAcquire(ctx); err == nil {
			return p.grant("Acquire", res, nil, tag)
		}
	}
	full, began := st.AcquiredResources() == p.max, time.Now()
	res, err := p.await(ctx)
	if err != nil && (ctx.Err() != nil || p.open.Err() != nil) {
		err = &gaveUp{cause: err, full: full, waited: time.Since(began)}
	}
	return p.grant("Acquire", res, err, tag)
}

// await waits for a stream until ctx ends or the pool closes. ctx may be the program's, and its
// methods are called once more after the wait. If one panics then, the stream goes back.
func (p *StreamPool) await(ctx context.Context) (res *puddle.Resource[*stream], err error) {
	returned := false
	defer func() {
		if !returned && res != nil {
			res.ReleaseUnused()
		}
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(p.open, cancel) // the holder of every stream may wait for this lease
	defer stop()
	p.waiting.Add(1)
	defer p.waiting.Add(-1)
	res, err = p.pool.Acquire(ctx)
	cancel()
	returned = true
	return res, err
}

// TryAcquire leases a stream without waiting for another lease to end; it may
// make a stream. If all are leased the error matches [ErrNoStream]; from when
// Close begins it matches [core.ErrClosed].
func (p *StreamPool) TryAcquire(ctx context.Context, tag core.Tag) (*Lease, error) {
	if err := cmp.Or(needPool("TryAcquire", p), refuse.NoContext(ctx, "TryAcquire")); err != nil {
		return nil, err
	}
	if p.closed.Load() {
		return nil, p.explain("TryAcquire", errPoolClosed)
	}
	res, err := p.pool.TryAcquire(ctx)
	for errors.Is(err, puddle.ErrNotAvailable) && p.pool.Stat().AcquiredResources() < p.max {
		res, err = p.acquireNew(ctx)
	}
	return p.grant("TryAcquire", res, err, tag)
}

// grant makes a lease of what puddle gave, or says why there is none.
func (p *StreamPool) grant(op string, res *puddle.Resource[*stream], err error, tag core.Tag) (*Lease, error) {
	if err != nil {
		return nil, p.explain(op, err)
	}
	l := (&Lease{id: nextID(), stream: res.Value(), pool: p, tag: tag.OrUntagged(), since: time.Now(), resource: res}).captureStack(2)
	if !p.admit(l) {
		return nil, p.explain(op, errPoolClosed)
	}
	return l, nil
}

// acquireNew waits for a stream that is being made. Another caller may be
// given it first, and then there is nothing left to wait for.
func (p *StreamPool) acquireNew(ctx context.Context) (*puddle.Resource[*stream], error) {
	moment, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
	defer cancel()
	res, err := p.pool.Acquire(moment)
	if err != nil && ctx.Err() == nil && moment.Err() != nil {
		err = puddle.ErrNotAvailable
	}
	return res, err
}

// observe tells of an error that means that the device is lost, and returns it.
func (p *StreamPool) observe(op string, err error) error {
	if p.onSticky != nil && errors.Is(err, core.ErrSticky) {
		usercode.Call("StreamPoolConfig.OnSticky", func() { p.onSticky(op, err) })
	}
	return err
}

// gaveUp is the end of a wait for a stream with its context.
type gaveUp struct {
	cause error
	// full: all streams were leased when the wait began.
	full   bool
	waited time.Duration
}

func (e *gaveUp) Error() string { return e.cause.Error() }
func (e *gaveUp) Unwrap() error { return e.cause }

func (p *StreamPool) explain(op string, err error) error {
	p.refused.Add(1)
	if errors.Is(err, core.ErrDriver) {
		return p.observe(op, fmt.Errorf("making a stream: %w", err))
	}
	if p.closed.Load() { // whatever puddle calls it
		return errPoolClosed
	}
	st, now := p.Stats(), " now"
	if errors.Is(err, puddle.ErrNotAvailable) { // which was so when all were; one may have come back since
		st.Leased, now = st.Max, ""
	}
	detail := fmt.Sprintf("%d of %d are leased%s", st.Leased, st.Max, now)
	if st.OldestTag != "" {
		detail += fmt.Sprintf(", the longest for %v by %s", st.OldestAge.Round(time.Millisecond), legible.Value(st.OldestTag))
	}
	if errors.Is(err, puddle.ErrNotAvailable) {
		return fmt.Errorf("%w: %s; give a lease back, wait with Acquire, or raise Config.Streams (FENCEPOST_STREAMS; StreamPoolConfig.Max of a pool made by hand)", ErrNoStream, detail)
	}
	w, _ := errors.AsType[*gaveUp](err)
	switch {
	case w == nil:
		return fmt.Errorf("acquiring a stream: %w", err)
	case st.Leased < st.Max && w.full:
		return fmt.Errorf("%w: all %d were leased when the wait of %v began; %s: %w", ErrNoStream, st.Max,
			w.waited.Round(time.Millisecond), detail, w.cause)
	case st.Leased >= st.Max:
		return fmt.Errorf("%w: %s, after a wait of %v: %w", ErrNoStream, detail, w.waited.Round(time.Millisecond), w.cause)
	}
	return fmt.Errorf("no stream was made within %v: %s: %w", w.waited.Round(time.Millisecond), detail, w.cause)
}

// Handle returns the driver's handle of a leased stream, for enqueueing work.
func (p *StreamPool) Handle(id core.StreamID) (driver.Stream, error) {
	if err := needPool("Handle", p); err != nil {
		return 0, err
	}
	s, err := p.table.resolve("Handle", id)
	if err != nil {
		return 0, err
	}
	return s.Handle(), nil
}

// Synchronize blocks until all work enqueued on a leased stream so far is done
// or ctx ends. What others enqueue meanwhile is not waited for. In a sampled trace
// the wait is a span; see [StreamPoolConfig].
func (p *StreamPool) Synchronize(ctx context.Context, id core.StreamID) error {
	if err := cmp.Or(needPool("Synchronize", p), refuse.NoContext(ctx, "Synchronize")); err != nil {
		return err
	}
	s, err := p.table.resolve("Synchronize", id)
	if err != nil {
		return err
	}
	end := p.step(ctx, oplog.Step{Stream: id})
	e, err := s.recordHere(id)
	if err == nil {
		defer e.Release()
		err = deadline.Poll(ctx, func() (bool, error) { return s.QueryCompleted(e) })
	}
	if err == nil {
		s.Lock()
		s.unpin()
		s.Unlock()
	}
	err = p.observe("Synchronize", err)
	end(err)
	return err
}

// step begins a step in ctx's trace, and returns what ends it.
func (p *StreamPool) step(ctx context.Context, s oplog.Step) func(error) {
	if p.beginStep != nil {
		var end func(error)
		usercode.Call(stepCode, func() { end = p.beginStep(ctx, s) })
		if end != nil {
			return func(err error) { usercode.Call(stepCode, func() { end(err) }) }
		}
	}
	return untraced
}

const stepCode = "StreamPoolConfig.BeginStep"

func untraced(error) {}

// BeginClose refuses new leases from now on, with an error that matches
// [core.ErrClosed], to those who wait for one too. It waits for nothing. Leases that are out stay good, and Close takes
// them back.
func (p *StreamPool) BeginClose() {
	if p != nil {
		p.mu.Lock()
		p.closed.Store(true)
		p.mu.Unlock()
		p.shut()
	}
}

// Close ends the pool: it grants no lease from now on, tells those who wait for
// one, waits for the leases until ctx ends, then for the streams' work, and
// destroys streams and events. With a context that has ended it does all that
// needs no waiting, which on an idle pool is everything. Leases still held are
// reported in the error, with where they were acquired; their streams are
// left alone, and destroyed when they are given back. After an error Close may
// be called again, for what is left. Once
// it has ended, a free of a block that was allocated on one of the streams is
// refused with [core.ErrClosed]: close the resource first.
//
// # How it works
//
// puddle's Close waits for every holder without a bound, and does not wake an Acquire that
// waits for a stream. So it comes last, when puddle has nothing left: the streams
// are taken out of it one by one, idle ones to be destroyed, and leased ones
// so that their Release destroys them. Each that is taken makes room for a
// waiter, who meets a constructor that refuses, which makes room for the next.
func (p *StreamPool) Close(ctx context.Context) error {
	if err := needPool("Close", p); err != nil {
		return err
	}
	p.BeginClose()
	p.mu.Lock()
	for _, l := range p.leased {
		if l.resource != nil {
			l.resource.Hijack()
			l.resource = nil
		}
	}
	p.mu.Unlock()
	err := deadline.Poll(ctx, p.emptied)
	if err != nil && p.answersAll() {
		moment, cancel := context.WithTimeout(context.WithoutCancel(ctx), driverMoment)
		defer cancel()
		err = deadline.Poll(moment, p.emptied)
	}
	if err != nil {
		return p.leasedAtClose()
	}
	p.pool.Close()
	return p.destroy(ctx)
}

// answersAll reports whether nothing is left but calls of the driver that take
// no time.
func (p *StreamPool) answersAll() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.leased)+len(p.adoptedHandles)+p.busy == 0
}

// emptied ends the streams that came back, and reports whether none is left.
func (p *StreamPool) emptied() (bool, error) {
	for _, s := range p.takeIdle() {
		p.end(s)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.leased)+len(p.adoptedHandles)+p.ending == 0 && p.pool.Stat().TotalResources() == 0, nil
}

func (p *StreamPool) takeIdle() (idle []*stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, res := range p.pool.AcquireAllIdle() {
		idle = append(idle, res.Value())
		res.Hijack()
		p.ending++
	}
	return idle
}

// end destroys a stream that is counted in p.ending, as soon as its work is done,
// and waits for neither.
func (p *StreamPool) end(s *stream) {
	busy := 0
	if !p.answered(s.Handle()) {
		busy = 1
	}
	p.mu.Lock()
	p.busy += busy
	p.mu.Unlock()
	go func() {
		_ = p.destruct(s) // what fails is left to Close, which reports
		p.mu.Lock()
		defer p.mu.Unlock()
		p.ending, p.busy = p.ending-1, p.busy-busy
	}()
}

func (p *StreamPool) leasedAtClose() error {
	var errs []error
	for _, l := range p.Leases() {
		where := cmp.Or(l.Stack.Caller(), "an unknown place")
		errs = append(errs, fmt.Errorf("stream %v (%s) is still leased, since %v by %s", l.ID, legible.Value(l.Tag),
			l.Since.Format(time.RFC3339), where))
	}
	if len(errs) == 0 {
		return errors.New("closing the stream pool: the device has not done the streams' work in time")
	}
	return errors.Join(append(errs, fmt.Errorf("closing the stream pool: %d leases were not given back in time", len(errs)))...)
}

// answered reports whether to synchronise with a stream takes no time, because
// its work is done or the device is lost.
func (p *StreamPool) answered(h driver.Stream) bool {
	done, err := p.drv.StreamQuery(h)
	return err == nil && done || errors.Is(err, core.ErrSticky) || errors.Is(err, core.ErrClosed)
}

// destroy gives everything back to the driver, and keeps what that refuses and
// what has work left when ctx ends.
func (p *StreamPool) destroy(ctx context.Context) error {
	p.backing.Lock() // no backstop is being made
	p.mu.Lock()
	p.destroyed = true
	p.table.shut()
	if p.backstop != nil {
		p.undestroyed = append(p.undestroyed, p.backstop)
		p.backstop = nil
	}
	streams := p.undestroyed
	p.undestroyed = nil
	p.mu.Unlock()
	p.backing.Unlock()
	errs := []error{p.destroyGraphs()}
	for _, s := range streams {
		errs = append(errs, p.destroyWhenIdle(ctx, s))
	}
	for _, s := range p.table.everyStream() {
		s.Lock()
		s.unpin()
		s.DropFinalEvent()
		errs = append(errs, s.CloseEvents())
		s.Unlock()
	}
	return errors.Join(errs...)
}

// destroyWhenIdle waits for the work of a stream of the pool until ctx ends, and
// destroys the stream.
func (p *StreamPool) destroyWhenIdle(ctx context.Context, s *stream) error {
	if p.answered(s.Handle()) {
		return p.destruct(s)
	}
	synchronized := make(chan struct{})
	go func() {
		defer close(synchronized)
		_ = p.drv.StreamSynchronize(s.Handle()) // destruct tells
	}()
	select {
	case <-synchronized:
		return p.destruct(s)
	case <-ctx.Done():
		p.keepUndestroyed(s)
		return fmt.Errorf("closing the stream pool: the device has not done the work of a stream in time: %w", ctx.Err())
	}
}

// keepUndestroyed leaves a stream to the next Close.
func (p *StreamPool) keepUndestroyed(s *stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.undestroyed = append(p.undestroyed, s)
}
