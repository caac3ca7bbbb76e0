package cuda

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/internal/books"
	"github.com/fencepost-gpu/fencepost/internal/fence"
	"github.com/fencepost-gpu/fencepost/internal/path"
)

// streamTable knows every physical stream and which lease is on it. Looking a
// lease up takes no lock.
type streamTable struct {
	drv         driver.Driver
	ordinal     int // the device's
	deviceOrder bool
	// remembers: the books keep blocks that were released.
	remembers bool
	order     *fence.Order

	// adoptedBooks count for all adopted streams: they come and go, and what was
	// counted must stay.
	adoptedBooks streamBooks
	// group is all books, with the peaks of the resource.
	group books.Group
	// records are those of all blocks, which the layers above share.
	records blockRecords

	// poisoned counts blocks whose use could not be fenced.
	poisoned atomic.Int64

	lostHosts lostHosts

	leases atomic.Pointer[leases]
	all    atomic.Pointer[[]*stream]

	mu sync.Mutex
	// removed are streams that are gone and may have events in use.
	removed []*stream
	// removedCalls is what the removed streams counted.
	removedCalls callCounts
	// closed is set when no stream is named any more, the default one included.
	closed atomic.Bool
}

// newStreamTable returns a table that holds the legacy default stream.
func newStreamTable(drv driver.Driver, deviceOrder, remembers bool) *streamTable {
	t := &streamTable{drv: drv, ordinal: drv.Ordinal(), deviceOrder: deviceOrder, remembers: remembers,
		order: fence.NewOrder(drv, deviceOrder)}
	t.records.Records = path.NewRecords(recordBook{t})
	t.leases.Store(newLeases(1))
	t.all.Store(&[]*stream{})
	t.adoptedBooks.joins(&t.group, new(path.Lane), t.share())
	t.setLease(core.DefaultStream, t.add(0, false))
	return t
}

// leases is which stream each lease is on: a hash table in which one goroutine at a time changes places while others
// look, until it is replaced by a larger one. A launch looks one up for each of its blocks, and a Go map takes several times as long.
type leases struct {
	places []leased // a power of two of them
	n      int      // on a stream: half of the places at most
}

// leased is a place: of no lease yet, of one that is on a stream, or of one that was and is never again.
type leased struct {
	id atomic.Uint64
	on atomic.Pointer[stream]
}

// unleased is the id of a place that was of none yet. Leases are counted up, and none comes to it.
const unleased = math.MaxUint64

func newLeases(n int) *leases {
	l := &leases{places: make([]leased, 1<<bits.Len(uint(2*n+1)))}
	for i := range l.places {
		l.places[i].id.Store(unleased)
	}
	return l
}

// put returns the table with a lease on a stream. A stream leaves a place before the next lease gets it, and
// comes to that after the lease.
func (l *leases) put(id core.StreamID, on *stream) *leases {
	if 2*(l.n+1) > len(l.places) {
		larger := newLeases(2 * (l.n + 1))
		for id, on := range l.each {
			larger.put(id, on)
		}
		l = larger
	}
	e := l.place(id, func(e *leased) bool { return e.on.Load() == nil })
	e.id.Store(uint64(id))
	e.on.Store(on)
	l.n++
	return l
}

// take takes a lease off its stream, if it is on one.
func (l *leases) take(id core.StreamID) {
	if e := l.place(id, func(e *leased) bool { return e.id.Load() == uint64(id) && e.on.Load() != nil }); e != nil {
		e.on.Store(nil)
		l.n--
	}
}

// place is the first that may be of a lease for which so holds, or nil.
func (l *leases) place(id core.StreamID, so func(*leased) bool) *leased {
	for i := range uint64(len(l.places)) {
		if e := &l.places[(uint64(id)+i)&uint64(len(l.places)-1)]; so(e) {
			return e
		}
	}
	return nil
}

// read is whose place it is and the stream, nil if the lease is on none any more.
func (e *leased) read() (id core.StreamID, on *stream) {
	id = core.StreamID(e.id.Load())
	if on = e.on.Load(); e.id.Load() != uint64(id) { // the next lease's
		on = nil
	}
	return id, on
}

// find returns the stream that id is on, nil if it is on none.
func (l *leases) find(id core.StreamID) *stream {
	for i := range uint64(len(l.places)) {
		switch of, on := l.places[(uint64(id)+i)&uint64(len(l.places)-1)].read(); of {
		case id:
			return on
		case unleased:
			return nil
		}
	}
	return nil
}

// each yields all, in no order.
func (l *leases) each(yield func(core.StreamID, *stream) bool) {
	for i := range l.places {
		if id, on := l.places[i].read(); on != nil && !yield(id, on) {
			return
		}
	}
}

// poison marks a block as beyond use; b.mu must be held.
func (t *streamTable) poison(b *block) {
	if !b.poisoned {
		b.poisoned = true
		t.poisoned.Add(1)
	}
}

// resolve returns the stream of a lease.
func (t *streamTable) resolve(op string, id core.StreamID) (*stream, error) {
	if s := t.leases.Load().find(id); s != nil {
		return s, nil
	}
	return nil, t.notLeased(op, id)
}

// notLeased is the refusal of work under an id that is on no stream.
func (t *streamTable) notLeased(op string, id core.StreamID) error {
	if t.closed.Load() {
		return fmt.Errorf("%s on stream %v refused: the stream pool is %w", op, id, core.ErrClosed)
	}
	return &core.StreamMisuseError{Op: op, Stream: id, Unleased: true,
		Reason: fmt.Sprintf("stream %v is not leased: it was released or never acquired; acquire a stream and keep the lease until its work is enqueued", id)}
}

// leaseOf returns the id under which s is used now, for messages: that of the
// default stream if there is none.
func (t *streamTable) leaseOf(s *stream) core.StreamID {
	for id, of := range t.leases.Load().each {
		if of == s {
			return id
		}
	}
	return core.DefaultStream
}

// enter resolves a lease for work that is enqueued without the stream's lock,
// and counts it as open there until the caller leaves. The lease is looked up
// again after counting: a Release that comes between is seen here, and one that
// comes later sees the work.
func (t *streamTable) enter(op string, id core.StreamID) (*stream, error) {
	seen := t.leases.Load()
	s := seen.find(id)
	if s == nil {
		return nil, t.notLeased(op, id)
	}
	s.Enter()
	if err := t.stillLeased(op, id, seen); err != nil {
		s.Leave()
		return nil, err
	}
	return s, nil
}

// stillLeased looks a lease up again, unless the leases, which are replaced at every change, are those that were seen.
func (t *streamTable) stillLeased(op string, id core.StreamID, seen *leases) error {
	if t.leases.Load() == seen {
		return nil
	}
	_, err := t.resolve(op, id)
	return err
}

// add takes a driver stream in. An adopted one counts into books that outlive it.
func (t *streamTable) add(handle driver.Stream, adopted bool) *stream {
	counters := &t.adoptedBooks
	s := &stream{drv: t.drv, books: counters, adopted: adopted}
	s.launch.on, s.launch.Handle = s, &s.launch
	if !adopted {
		counters = new(streamBooks)
		counters.joins(&t.group, &s.host, t.share())
		s.books = counters
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.order.Add(&s.Stream, handle, adopted || handle == 0, &counters.Counts)
	s.host.SetPart(path.BackendPart, s)
	s.launch.time.state, s.timeReuse.state = uint32(s.Slot()), uint32(s.Slot()) // streams do not choose alike
	all := append(slices.Clone(*t.all.Load()), s)
	t.all.Store(&all)
	return s
}

// share is how many released blocks the next stream remembers.
func (t *streamTable) share() int {
	if !t.remembers {
		return 0
	}
	return max(leastRemembered, rememberedBlocks/(len(t.streams())+1))
}

// remove forgets a stream that was given up and whose work is all done, and
// frees its slot; the stream must be locked, so that it is removed once.
func (t *streamTable) remove(s *stream) error {
	if !slices.Contains(t.streams(), s) {
		return nil // by another caller
	}
	if err := s.CloseEvents(); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	all := slices.DeleteFunc(slices.Clone(t.streams()), func(other *stream) bool { return other == s })
	t.all.Store(&all)
	t.removedCalls = t.removedCalls.plus(s.calls)
	t.order.Remove(&s.Stream)
	t.removed = append(slices.DeleteFunc(t.removed, withoutEvents), s)
	return nil
}

// made reports whether handle is of a stream that the pool made and has.
func (t *streamTable) made(handle driver.Stream) bool {
	return slices.ContainsFunc(t.streams(), func(s *stream) bool {
		return s.Handle() == handle && !s.adopted && !s.IsGivenUp()
	})
}

// mayBeForgotten reports whether s was given up and may be forgotten when
// its work is done. The pool's own streams are not forgotten: their books are
// theirs alone.
func (t *streamTable) mayBeForgotten(s *stream) bool {
	return s.IsGivenUp() && s.adopted && !t.deviceOrder
}

func withoutEvents(s *stream) bool { return s.Events() == 0 }

// everyStream is all streams alive, and those removed whose last events were
// not given back yet.
func (t *streamTable) everyStream() []*stream {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append(slices.Clone(*t.all.Load()), t.removed...)
}

// lastLease numbers the leases of all devices of the process.
var lastLease atomic.Uint64

// nextID returns an id that no lease of the process had.
func nextID() core.StreamID { return core.StreamID(lastLease.Add(1)) }

// setLease puts a lease on s.
func (t *streamTable) setLease(id core.StreamID, s *stream) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.lease.Store(uint64(id))
	t.leases.Store(t.leases.Load().put(id, s))
}

// shut takes all leases off, that of the default stream too.
func (t *streamTable) shut() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed.Store(true)
	t.leases.Store(newLeases(0))
}

// unlease takes the lease off; later uses of its id are refused.
func (t *streamTable) unlease(id core.StreamID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leases.Load().take(id)
}

// defaultStream is the legacy default stream, which is never forgotten.
func (t *streamTable) defaultStream() *stream { return t.streams()[0] }

// streams are all physical streams alive, the default one first.
func (t *streamTable) streams() []*stream { return *t.all.Load() }

// recordBook is how layers find the records of the table's blocks.
type recordBook struct{ t *streamTable }

// Load is [path.Book].Load.
func (r recordBook) Load(id core.BlockID) *path.Record { return recordOf(r.t.load(id)) }

// Find is [path.Book].Find.
func (r recordBook) Find(id core.BlockID) *path.Record { return recordOf(r.t.lookup(id)) }

// Each is [path.Book].Each.
func (r recordBook) Each(yield func(core.Generation, *path.Record) bool) {
	stopped := false
	r.t.eachBooks(r.t.streams(), func(b *streamBooks) {
		stopped = stopped || !b.blocks.List(&b.Books, func(g core.Generation, record *block) bool { return yield(g, &record.Record) })
	})
}

func recordOf(b *block) *path.Record {
	if b == nil {
		return nil
	}
	return &b.Record
}

// load looks where the lease of a block says that it is, without a lock.
func (t *streamTable) load(id core.BlockID) *block {
	if s := t.leases.Load().find(id.AllocStream); s != nil {
		return s.books.blocks.Load(id.Generation)
	}
	return nil
}

// lookup finds a block by its generation. The lease it was allocated under
// says where it is; if that was given back since, all streams are searched.
func (t *streamTable) lookup(id core.BlockID) *block {
	if b := t.load(id); b != nil {
		return b
	}
	for _, s := range t.streams() {
		if b := s.books.find(id.Generation); b != nil {
			return b
		}
	}
	return t.adoptedBooks.find(id.Generation)
}

// find returns the locked record of a live block.
func (t *streamTable) find(op string, id core.BlockID, stream core.StreamID) (*block, error) {
	if id.Ordinal != t.ordinal {
		return nil, &core.StreamMisuseError{Op: op, Block: id, Stream: stream,
			Reason: fmt.Sprintf("the block belongs to device %d, this resource serves device %d", id.Ordinal, t.ordinal)}
	}
	return t.lock(t.lookup(id), op, id, stream)
}

// lock locks a block that was found, if it was and is live.
func (t *streamTable) lock(b *block, op string, id core.BlockID, stream core.StreamID) (*block, error) {
	if b == nil {
		return nil, goneError(op, id)
	}
	b.mu.Lock()
	if err := b.check(op, id, stream); err != nil {
		b.mu.Unlock()
		return nil, err
	}
	return b, nil
}

// goneError is the refusal of a block that is in no books.
func goneError(op string, id core.BlockID) error {
	return &core.UseAfterFreeError{Op: op, Generation: id.Generation, Block: id, State: core.Freed}
}

// eachBooks calls f for the books of the streams, each once.
func (t *streamTable) eachBooks(streams []*stream, f func(*streamBooks)) {
	f(&t.adoptedBooks)
	for _, s := range streams {
		if !s.adopted {
			f(s.books)
		}
	}
}

// stream is a physical stream of the driver: its order, which is the engine's, and what
// the runtime keeps of it under the same lock. Leases come and go on it; order and
// pending frees belong to the stream.
type stream struct {
	_ [64]byte // streams share no cache line
	fence.Stream
	drv driver.Driver

	// host is the stream's lane, under whose lock are its books, its part of a pool, and what
	// the layers above have of it. spare are records of blocks that the next allocations
	// take.
	host path.Lane
	// freedAtHand is the bytes of blocks that were freed under the lane's lock alone, which guards it.
	freedAtHand uint64
	spare       []*block
	kept        keptBlocks

	// frees is where retired blocks wait until they are released.
	frees freeQueue
	// arena is the stream's part of a pool, nil until it takes from one.
	arena *arena
	// alone has the next allocation tried although the share may have no room: see driverPool.
	alone tries
	// pins are the host buffers of copies under way, oldest first.
	pins []pin

	// calls is what a census wants to know of the stream.
	calls callCounts
	// freeAttempts is how many frees ever began to queue something. One that failed may
	// have queued its waits.
	freeAttempts uint64

	// pinned is the length of pins.
	pinned atomic.Int64
	books  *streamBooks
	// adopted: the stream is the caller's. It does not change.
	adopted bool
	// captured are the streams of the capture that began here; stuck: it
	// could not be ended. It changes under the stream's lock.
	captured []*stream
	stuck    atomic.Bool
	// launch is of the one that has what the stream has for one launch at a time.
	launch launch
	// timesSeen is the last look at timed launches that found one of the stream's not done; who looks guards it.
	timesSeen uint64
	// timeReuse chooses the allocations that are timed where they make the stream wait; the stream's lock guards it.
	timeReuse countdown
	// lease is the last id that the stream was leased under, 0 if none was.
	lease atomic.Uint64
	// followed is the last lease that an account follows; nil if there was none.
	followed atomic.Pointer[Lease]
	_        [64]byte
}

// isDefault reports whether it is the legacy default stream. That cannot capture, but nothing may be enqueued on it while
// a stream that synchronises with it does. So the driver is asked before something is, and not for a block that comes
// from the stream's own memory, or goes there.
func (s *stream) isDefault() bool { return s.Handle() == 0 }
