package cuda

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/fence"
)

// driverPool is memory of a pool of the driver's, which allocates and frees in the order
// of streams itself, and itself notices what the device has completed.
//
// # The share
//
// The driver does not say in advance whether an allocation makes the pool grow. So while a share is
// set, each allocation counts as growth, in whole steps:
//   - asked counts what was asked for; answered is the part that the driver has answered.
//   - A reading of the pool includes everything that was answered before it.
//   - The pool therefore holds at most the reading, and what was asked for since.
//
// If that could exceed the share, makeRoom reads the pool and trims it. If that leaves no room
// either, the request is tried alone. It is given back, and refused, if the pool grew beyond the
// share.
type driverPool struct {
	drv      driver.Driver
	pool     driver.Pool
	readings atomic.Uint64
	last     atomic.Pointer[poolReading]
	// destroyed: the driver frees what is given from now on. closing guards it.
	closing   sync.Mutex
	destroyed bool

	tracker         *tracker
	share           *share
	asked, answered atomic.Uint64
	// known is what the share counts from, nil if that is to be read.
	known atomic.Pointer[poolReading]
	// tolerated is the least that was held at any time since the share was set. It is more than the
	// share if the share was lowered below that. It excludes what a try took.
	tolerated atomic.Uint64
	// step is the least that the pool was seen to grow by, in bytes.
	step atomic.Uint64
	// growing is held by the request that makes room.
	growing sync.Mutex
	// alone is held over a try, under the lock of the stream.
	alone sync.Mutex
	// shrunk is when more was held than the share, and what was free was given back. growing guards
	// it.
	shrunk time.Time
}

// poolReading is what the pool said, and when it was queried: readings are
// numbered before the driver is called.
type poolReading struct {
	driver.PoolStats
	number uint64
	// answered is driverPool.answered before the driver was called.
	answered uint64
}

// poolStep is what a pool of the driver's grows by at first; mostPoolStep is the most that is taken
// for a step.
const (
	poolStep     = 2 << 20
	mostPoolStep = 64 << 20
)

// errBeyond: the pool of the driver's grew beyond the share by an allocation, which was given back.
var errBeyond = fmt.Errorf("no free range of the pool is large enough: %w", core.ErrOutOfMemory)

func newDriverPool(drv driver.Driver, cfg driver.PoolConfig) (*driverPool, error) {
	pool, err := drv.PoolCreate(cfg)
	if err != nil {
		return nil, err
	}
	p := &driverPool{drv: drv, pool: pool}
	p.last.Store(new(poolReading))
	return p, nil
}

func (p *driverPool) bind(r *tracker) {
	p.step.Store(poolStep)
	r.share.page, r.share.streams = poolStep, func() int { return 1 }
	p.tracker, p.share = r, &r.share
}

// shareSet has the pool read before the next allocation: what was asked for without a share was not
// counted.
func (p *driverPool) shareSet() { p.known.Store(nil) }

// held is what was read and asked for since, or, without a share, what was read.
func (p *driverPool) held() uint64 {
	if known := p.known.Load(); known != nil {
		return known.Reserved + p.asked.Load() - known.answered
	}
	return p.last.Load().Reserved
}

func (p *driverPool) take(s *stream, bytes uint64) (uint64, error) {
	if p.share.set.Load() == 0 {
		return p.allocate(s, bytes)
	}
	if s.alone.now {
		s.alone.now = false
		return p.takeAlone(s, bytes)
	}
	grows := p.steps(bytes)
	defer p.answered.Add(grows)
	if p.asked.Add(grows); !p.fits(0) {
		return 0, errNoRoom
	}
	return p.allocate(s, bytes)
}

// steps is what the pool may grow by for a request.
func (p *driverPool) steps(bytes uint64) uint64 {
	step := p.step.Load()
	return (bytes + step - 1) / step * step
}

// fits reports whether the pool may grow by some bytes more.
func (p *driverPool) fits(bytes uint64) bool {
	known := p.known.Load()
	return known != nil && known.Reserved+p.asked.Load()-known.answered+bytes <= p.share.forPool()
}

func (p *driverPool) allocate(s *stream, bytes uint64) (uint64, error) {
	return p.drv.MemAllocAsync(bytes, p.pool, s.Handle())
}

// takeAlone allocates although there may be no room, and frees the memory again if there was none.
// The pool returns it to the device when the device has passed the stream's work. Until then the
// pool may hold more than the share. A request of at most a step of the pool is served from that,
// if the pool held as much before its first try: it takes no more of the device.
func (p *driverPool) takeAlone(s *stream, bytes uint64) (uint64, error) {
	p.alone.Lock()
	defer p.alone.Unlock()
	ptr, err := p.allocate(s, bytes)
	if err != nil {
		return 0, err
	}
	beyond, had := s.alone.beyond, s.alone.had
	s.alone.beyond = 0
	if bytes > poolStep {
		had = 0
	}
	if err = p.reap(); err == nil && p.last.Load().Reserved <= max(had, p.tolerated.Load(), p.share.forPool()+beyond) {
		return ptr, nil
	}
	if undone := p.drv.MemFreeAsync(ptr, s.Handle()); undone != nil {
		return ptr, nil // it is allocated: what failed the driver says again, and the block is the caller's
	}
	if err != nil {
		return 0, err
	}
	return 0, errBeyond
}

func (p *driverPool) give(s *stream, ptr, _ uint64, _ *fence.Frontier) error {
	return p.drv.MemFreeAsync(ptr, s.Handle())
}

// makeRoom makes room in the share. If the device has no memory, it tries nothing: the driver has
// tried.
func (p *driverPool) makeRoom(s *stream, req *core.Request, err error) error {
	if !errors.Is(err, errNoRoom) && !errors.Is(err, errBeyond) {
		_ = p.reap()
		return p.explain(req, err)
	}
	p.growing.Lock()
	defer p.growing.Unlock()
	grows := p.steps(req.Bytes)
	p.share.needs(grows)
	if err := p.reap(); err != nil {
		return err
	}
	if errors.Is(err, errNoRoom) && p.fits(grows) {
		return nil
	}
	most := p.share.forPool()
	if err := p.drv.PoolTrim(p.pool, most-min(most, grows)); err != nil {
		return err
	}
	if err := p.reap(); err != nil {
		return err
	}
	pieces := p.share.pieces(req)
	switch last := p.last.Load(); {
	case p.fits(grows):
		return nil
	case last.Used+req.Bytes > most+pieces:
		return p.explain(req, nil)
	}
	s.Lock()
	defer s.Unlock()
	if !s.alone.next(err, pieces, p.last.Load().Reserved) {
		return p.explain(req, nil)
	}
	return nil
}

// tries are those of a stream's request that is tried alone. The stream's lock guards them.
type tries struct {
	// now: the next request of the stream is one.
	now bool
	// failed is how many in a row took the pool beyond the share. Others may have filled it meanwhile.
	failed int
	// beyond is how much more than the share the pool may hold by the next: see [share.pieces].
	beyond uint64
	// had is what the pool held before the first.
	had uint64
}

// mostTries is how often a request is tried alone within the share.
const mostTries = 4

// next lets the next request be tried alone, after an error of the last. After mostTries it may
// exceed the share by pieces, and is refused if pieces is zero.
func (t *tries) next(err error, pieces, held uint64) bool {
	if !errors.Is(err, errBeyond) {
		t.failed, t.had = 0, held
	} else if t.failed++; t.failed > mostTries || t.failed == mostTries && pieces == 0 {
		*t = tries{}
		return false
	}
	if t.now = true; t.failed == mostTries {
		t.beyond = pieces
	}
	return true
}

// giveAtOnce is false: another stream gets the memory when the device has come to its free.
func (p *driverPool) giveAtOnce() bool { return false }

// given and due have nothing to tell: each free is pending until it is completed.
func (p *driverPool) given() func() bool { return func() bool { return true } }
func (p *driverPool) due() bool          { return false }

// reap reads the pool. If several readings overlap, the one that began last stays.
func (p *driverPool) reap() (err error) {
	reading := &poolReading{number: p.readings.Add(1), answered: p.answered.Load()}
	if reading.PoolStats, err = p.drv.PoolStats(p.pool); err != nil {
		return err
	}
	put := func(at *atomic.Pointer[poolReading]) {
		for last := at.Load(); (last == nil || last.number < reading.number) && !at.CompareAndSwap(last, reading); {
			last = at.Load()
		}
	}
	p.learnStep(reading)
	p.tolerate(reading)
	put(&p.last)
	put(&p.known)
	return nil
}

func (p *driverPool) tolerate(now *poolReading) {
	least := p.tolerated.Load()
	if p.known.Load() == nil { // the first since the share was set
		p.tolerated.CompareAndSwap(least, now.Reserved)
		return
	}
	for now.Reserved < least && !p.tolerated.CompareAndSwap(least, now.Reserved) {
		least = p.tolerated.Load()
	}
}

// learnStep takes larger steps for possible if the pool has grown by more than was thought.
func (p *driverPool) learnStep(now *poolReading) {
	known, step := p.known.Load(), p.step.Load()
	if known != nil && p.share.set.Load() != 0 && now.Reserved > known.Reserved+p.asked.Load()-known.answered &&
		step < mostPoolStep {
		p.step.CompareAndSwap(step, 2*step)
	}
}

// trim reads the pool, too: the request for room then sees what is held now.
func (p *driverPool) trim(keep uint64) error {
	if err := p.drv.PoolTrim(p.pool, keep); err != nil {
		return err
	}
	return p.reap()
}

// tick gives back free memory while the pool holds more than a share that was lowered. For the rest
// the driver has a release threshold.
func (p *driverPool) tick(now time.Time) error {
	most := p.share.forPool()
	if most == noBound || p.known.Load() != nil && p.held() <= most || !p.growing.TryLock() {
		return nil
	}
	defer p.growing.Unlock()
	if now.Sub(p.shrunk) < shrinkInterval {
		return nil
	}
	p.shrunk = now
	if err := p.reap(); err != nil || p.last.Load().Reserved <= most {
		return err
	}
	if err := p.drv.PoolTrim(p.pool, most); err != nil {
		return err
	}
	return p.reap()
}

func (p *driverPool) addTo(st *core.Stats) {
	last := p.last.Load()
	st.Reserved, st.ReservedHigh = st.Reserved+last.Reserved, st.ReservedHigh+last.ReservedHigh
	st.PoolUsed, st.PoolUsedHigh = st.PoolUsed+last.Used, st.PoolUsedHigh+last.UsedHigh
	st.Cached += last.Reserved - min(last.Reserved, last.Used)
}

// drift is nothing: the driver has the books.
func (p *driverPool) drift() (bytes int64, ok bool) { return 0, true }

func (p *driverPool) close() error {
	p.closing.Lock()
	defer p.closing.Unlock()
	if p.destroyed {
		return nil
	}
	err := p.drv.PoolDestroy(p.pool)
	p.destroyed = err == nil
	return err
}
