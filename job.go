package fencepost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/fencepost-gpu/fencepost/admit"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/cures"
	"github.com/fencepost-gpu/fencepost/internal/line"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
	"github.com/fencepost-gpu/fencepost/internal/refuse"
	"github.com/fencepost-gpu/fencepost/internal/usercode"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

// Job is the work of one [Runtime.Do]: a stream, and the memory that was
// allocated through it. It and its forks belong to one goroutine, and end when
// the function returns that they were given to: every call after that is
// refused with a [core.StreamMisuseError], and with its context the calls end
// too.
type Job struct {
	state *jobState
	on    *jobStream
}

// jobState is what a job shares with its forks.
type jobState struct {
	owner   *Runtime
	rt      *core.Runtime
	pool    *cuda.StreamPool
	memory  *cuda.MemoryManager
	ctx     context.Context
	tag     core.Tag
	claim   core.Claim
	account *core.Account
	// forecast is nil of a job that was not to be learned from.
	forecast *forecast
	options  jobOptions
	began    monotime.Instant
	span     telemetry.Job
	streams  []*jobStream
	blocks   []core.BlockID // that were allocated and may be live, in that order
	lived    int            // how many of blocks were, when that was last asked
	ended    atomic.Bool
	calls    launchLists

	// What most jobs need is one allocation.
	job   Job
	first jobStream
	room  struct {
		streams [1]*jobStream
		blocks  [4]core.BlockID
		uses    [4]core.Use
		args    [6]driver.Arg
	}
}

// jobStream is one lease of a job.
type jobStream struct {
	lease *cuda.Lease
	// busy: something was enqueued that was not waited for. handed: the lease
	// was given out, so that this is not known.
	busy, handed bool
}

// JobOption is an option of [Runtime.Do]; see [Reserve], [Admit] and [Shape].
type JobOption func(*jobOptions)

// Do runs work on the device. It leases a stream, waiting for one until ctx
// ends, calls work on this goroutine, and waits until the device has done what
// work enqueued: when Do returns nil, all of it is done, and what was uploaded
// may be changed. Whatever happens, an error, a panic (which goes on to the
// caller), runtime.Goexit or the end of ctx, the memory that was allocated
// through the job is freed, and the stream and the reservation are given back.
//
//	var sum []float32
//	err := rt.Do(ctx, "vector.add", func(j *fencepost.Job) error {
//		x, err := fencepost.Upload(j, xs)
//		if err != nil {
//			return err
//		}
//		y, err := fencepost.Upload(j, ys)
//		if err != nil {
//			return err
//		}
//		if err := j.Launch(add, cuda.Blocks1D(n, 256), fencepost.Reads(x), fencepost.ReadWrites(y), fencepost.Value(uint32(n))); err != nil {
//			return err
//		}
//		sum, err = fencepost.Download(j, y)
//		return err
//	})
//
// The name is the tag of the memory and of the lease, and so a label of metrics
// and traces: it comes from a small fixed set and carries no identifiers. A name
// that is too long or no UTF-8 is kept as [names.Bound] says.
//
// Errors are those of work; [core.OutOfBudgetError] if a reservation is refused;
// [cuda.ErrNoStream] together with ctx's; those of the driver; ctx's; and
// [core.InvalidRequestError] for work that is nil. If ctx ends before the device
// is done, or work panics, Do does not wait for it: what was uploaded must then
// not be changed, though the runtime keeps it in place, and the memory is freed
// behind the work that uses it.
//
// A job that calls Do again holds a stream while it waits for another one.
func (r *Runtime) Do(ctx context.Context, name string, work func(*Job) error, options ...JobOption) (err error) {
	const op = "Do"
	switch {
	case r == nil:
		return refuse.Nil(op, "runtime", "use what fencepost.Open returned, and see to its error")
	case work == nil:
		return refuse.Nil(op, "work", "pass the function that does the work")
	case ctx == nil:
		return refuse.NoContext(ctx, op)
	}
	s := &jobState{owner: r, rt: r.core, pool: r.streams, memory: r.memory, tag: core.Tag(names.Bound(name)),
		began: monotime.Now(), account: core.NewAccount()}
	s.streams, s.blocks = s.room.streams[:0], s.room.blocks[:0]
	s.calls = launchLists{s.room.uses[:0], s.room.args[:0]}
	s.ctx, s.span = r.jobSpans.Begin(ctx)
	returned := false
	defer r.leave(s) // the last step: those who wait then have what was learned
	defer func() { r.report(s, err, returned) }()
	defer func() { err = also(err, s.end()) }()
	j, err := r.begin(s, options)
	if err == nil {
		if err = work(j); err == nil {
			err = j.wait()
		} else {
			_ = j.wait() // the caller gets its host memory back; why work failed says more
		}
	}
	returned = true
	return err
}

// begin reserves memory and leases a stream, in this order: a job that waits
// for memory holds none. After an error the caller ends the job.
func (r *Runtime) begin(s *jobState, options []JobOption) (*Job, error) {
	ctx, tag, o := s.ctx, s.tag, &s.options
	for _, option := range options {
		if option != nil {
			option(o)
		}
	}
	began := s.began
	if o.admit || o.dimensions > 0 {
		if err := r.foresee(s, o); err != nil {
			return nil, err
		}
	}
	if o.reserve {
		claim, err := r.reserveWithin(ctx, s, o)
		asked := began
		began = monotime.Now()
		s.account.Note(func(a *core.JobAccount) { a.WaitedForMemory = began.Since(asked) })
		if err != nil {
			return nil, err
		}
		if s.claim = claim; claim.ID != 0 {
			r.inside.holds(s.forecast.surprise())
			s.account.Reserve(claim.Bytes)
		}
	}
	lease, err := r.streams.Acquire(ctx, tag)
	s.account.Note(func(a *core.JobAccount) { a.WaitedForStream = monotime.Now().Since(began) })
	if err != nil {
		return nil, err
	}
	s.first.lease = lease
	s.job = Job{state: s, on: s.add(&s.first)}
	return &s.job, nil
}

// add takes a stream into the job.
func (s *jobState) add(on *jobStream) *jobStream {
	on.lease.Follow(s.account)
	s.streams = append(s.streams, on)
	return on
}

// Fork returns the job on a stream of its own: what is done through the fork
// and what is done through j run beside each other, and where they use the same
// memory the runtime queues the waits between them. If no stream is free the
// fork is on j's stream: it is done in turn then, and no job waits for a stream
// while it holds one. A fork ends with the job. It may block in the driver, which
// makes the stream.
func (j *Job) Fork() (*Job, error) {
	if err := j.check("Job.Fork"); err != nil {
		return nil, err
	}
	s := j.state
	if st := s.pool.Stats(); st.Leased >= st.Max { // without a refusal to count
		return &Job{state: s, on: j.on}, nil
	}
	lease, err := s.pool.TryAcquire(s.ctx, s.tag)
	if errors.Is(err, cuda.ErrNoStream) {
		return &Job{state: s, on: j.on}, nil
	}
	if err != nil {
		return nil, err
	}
	return &Job{state: s, on: s.add(&jobStream{lease: lease})}, nil
}

// Account is what the job and its forks have needed of the device and waited for, from when [Runtime.Do] was called, with
// its wait for a reservation and a stream, until now, or until it ended: the most memory that was live at once of what was
// allocated through the job, bytes times seconds, what of its reservation was not used, its waits. It is exact whatever
// others do; of launches that are not in a sampled trace only one in so many ([Config].TimeOneIn) is timed, and JobAccount
// says of how many the device's times are. What was freed counts as no more live, by whatever call and goroutine. Any
// goroutine may call it, also when the job has ended. It does not block. That of a nil Job is zero.
func (j *Job) Account() core.JobAccount {
	if j == nil {
		return core.JobAccount{}
	}
	return j.state.account.Read()
}

// Stream is the job's stream, for copies, graphs and launches that a Job has no
// call for. What was allocated for them elsewhere is not freed with the job. It
// must not be released. Nil of a nil Job.
func (j *Job) Stream() *cuda.Lease {
	if j == nil {
		return nil
	}
	j.on.handed = true
	return j.on.lease
}

// check refuses work of a job that has ended, or whose time is over.
func (j *Job) check(op string) error {
	if j == nil {
		return refuse.Nil(op, "job", "use the job that Do passes to its function")
	}
	s := j.state
	if s.ended.Load() {
		return &core.StreamMisuseError{Op: op, Stream: j.on.lease.ID(), Unleased: true,
			Reason: fmt.Sprintf("the job %q has ended, and its stream and memory were given back: a Job is good until the function returns that Do was given", s.tag.OrUntagged())}
	}
	if err := s.ctx.Err(); err != nil {
		return fmt.Errorf("%s of the job %q was not begun: %w", op, s.tag.OrUntagged(), err)
	}
	return nil
}

type jobOptions struct {
	// guess: nothing is known of an admitted job, so bytes are a guess, and less will do where no
	// more will come free.
	reserve, admit, guess bool
	// least is what will do instead of bytes where no more will come free; 0 if nothing else will.
	least, bytes uint64
	wait         time.Duration
	shape        admit.Shape
	dimensions   int
}

// Reserve sets bytes of the budget aside for a job before it begins, so that it
// is not refused halfway; what it allocates is drawn from them. Reserve the sum of
// what the job uploads and allocates: it is counted as asked for, not rounded up.
// What the job frees early returns to its reservation. The guard's red zones are
// not drawn from it but from the rest of the budget; where nothing is left, blocks
// have none, which is the reason guard_gaps of [Runtime.Health]. An allocation
// beyond the reservation is refused with [core.ErrClaimExceeded], also if the
// budget has room.
//
// If the bytes are not free the job waits, holding nothing, until they are released or wait or its
// context is over. Jobs that wait are served in the order in which they came: one that would fit
// waits behind one that does not, unless [Config].ReservePasses lets it pass. One that does not
// wait does not queue either: it takes what is free now. Then Do returns the budget's refusal, a
// [core.OutOfBudgetError] that names the largest holders and what stood before the job, or a
// [core.WaitError] that matches the context's error and names the holders too. A wait of 0 refuses
// at once; more bytes than the limit are refused at once too. Zero bytes are a
// [core.InvalidRequestError], although an upload of no values is none: leave Reserve out then.
func Reserve(bytes uint64, wait time.Duration) JobOption {
	return func(o *jobOptions) { o.reserve, o.bytes, o.wait = true, bytes, wait }
}

// Waiting is how many jobs wait for their reservation now. It does not block.
func (r *Runtime) Waiting() int { return r.orNone().line.Len() }

// Learning is how many jobs with [Admit] wait or run now that began when nothing was known of what
// they need, so that their reservation is a guess. It is safe for concurrent use and does not
// block.
func (r *Runtime) Learning() int { return r.orNone().inside.learning() }

const (
	// leastPause is between two looks of the first that waits, however often it is woken.
	leastPause = 100 * time.Microsecond
	// longComing is how long the first that waits hopes for memory that is on its way before it
	// makes do with less.
	longComing = 31 * time.Millisecond
	// mostAnswers is how often the program's function gives memory back for one job.
	mostAnswers = 16
)

// reserveWithin reserves in order: who comes later waits until those before have theirs, or have
// given up, or let it pass. It looks before it asks, because each refusal counts. An admitted job
// waits until room stays for the largest surprise, or no job has a reservation that will come back:
// then the first takes what there is, if that is the least that it needs. One of which nothing is
// known waits for a guess, until something is known.
func (r *Runtime) reserveWithin(ctx context.Context, s *jobState, o *jobOptions) (core.Claim, error) {
	tag := s.tag
	if o.wait > 0 && r.line.Len() == 0 {
		if claim, ok, err := r.tryReserve(ctx, s, o, r.budget.Room()); ok {
			return claim, err
		}
	}
	if o.wait <= 0 {
		return r.Reserve(cures.Impatient(ctx), o.bytes, tag)
	}
	began := time.Now()                                 // so that it has waited as long as it was told to
	patient, cancel := context.WithTimeout(ctx, o.wait) // the room's own patience ends with it
	defer cancel()
	if room := r.room(ctx); room.never(o) {
		return r.Reserve(patient, o.bytes, tag)
	}
	place := r.line.Join(o.bytes, string(tag), began)
	defer place.Leave()
	var looked monotime.Instant
	var coming monotime.Instant // since when memory is on its way for the first that waits
	for answers := 0; ; {
		var pause time.Duration
		turn := place.Turn()
		if place.MayTry() {
			seen := r.shortage.Signs()
			if o.guess {
				if err := r.predict(s, o); err != nil {
					return core.Claim{}, err
				}
			}
			none := r.inside.noneHolds() // before the look: what comes back after it wakes
			room := r.room(ctx)
			if room.never(o) {
				return r.Reserve(patient, o.bytes, tag)
			}
			all := *o
			if none && (o.guess || o.least > 0) && room.bytes >= o.least && (!room.coming || coming != 0 && monotime.Now().Since(coming) >= longComing) {
				o.bytes = min(o.bytes, room.bytes)
			}
			claim, ok, err := r.tryReserve(patient, s, o, room.bytes)
			if ok {
				return claim, err
			}
			*o = all
			place.LetPass(room.bytes)
			if room.bytes < o.bytes && answers < mostAnswers && r.shortage.AskProgram(patient, o.bytes) {
				answers++
				continue
			}
			looked = monotime.Now()
			switch {
			case !room.coming:
				coming = 0
			case coming == 0:
				coming = looked
			}
			if room.coming {
				r.awaitMemory(patient, seen, o, turn)
				turn, pause = nil, leastPause-monotime.Now().Since(looked)
			}
		}
		if turn != nil {
			select {
			case <-patient.Done():
			case <-turn:
				pause = leastPause - monotime.Now().Since(looked)
			}
		}
		if patient.Err() != nil {
			return r.endWait(ctx, place, s, o)
		}
		time.Sleep(pause) // others may come back meanwhile
	}
}

// awaitMemory waits until the memory is no more as seen, or the line moves. A job that makes do with
// less looks again when it has hoped for long enough.
func (r *Runtime) awaitMemory(ctx context.Context, seen cures.Signs, o *jobOptions, turn <-chan struct{}) {
	if o.guess || o.least > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, longComing)
		defer cancel()
	}
	if _, err := r.shortage.Await(ctx, seen, cures.Job, turn); err != nil {
		time.Sleep(time.Millisecond) // a failure that lasts shows in the next look
	}
}

// tryReserve reserves if there is room. It is false if the job has to wait.
func (r *Runtime) tryReserve(ctx context.Context, s *jobState, o *jobOptions, room uint64) (claim core.Claim, ok bool, err error) {
	if o.admit {
		if o.bytes == 0 && (o.guess || s.forecast.Runs > 0) { // it needs nothing, or no job has what it could wait for
			return core.Claim{}, true, nil
		}
		if room < o.bytes || room-o.bytes < r.kept(s, o) {
			return core.Claim{}, false, nil
		}
	}
	if room < o.bytes {
		return core.Claim{}, false, nil
	}
	if claim, err = r.Reserve(ctx, o.bytes, s.tag); errors.Is(err, core.ErrOutOfBudget) {
		return core.Claim{}, false, nil
	}
	return claim, true, err
}

// kept is how many bytes stay free beside a job that is admitted.
func (r *Runtime) kept(s *jobState, o *jobOptions) uint64 {
	if !o.admit {
		return 0
	}
	return r.inside.headroom(s.forecast.surprise(), r.budget.Limit())
}

// leave is the last step of an admitted job: those who wait may know more now.
func (r *Runtime) leave(s *jobState) {
	if s.forecast != nil && s.forecast.admitted {
		r.inside.learned(s)
		r.line.Wake()
	}
}

// endWait is the end of a wait that got nothing. A job that has others before it takes nothing.
func (r *Runtime) endWait(ctx context.Context, place *line.Place, s *jobState, o *jobOptions) (core.Claim, error) {
	mayTry, at, bytes, tag := place.MayTry(), place.Standing(), o.bytes, s.tag
	wait := core.Wait{For: at.Waited, Ahead: at.Ahead, AheadBytes: at.Bytes, First: core.Tag(at.First), Learning: o.guess}
	switch err := ctx.Err(); {
	case err != nil:
		stood := r.budget.Explain(bytes, tag)
		return core.Claim{}, &core.WaitError{Requested: bytes, Tag: tag, Wait: wait, Limit: stood.Limit,
			Remaining: stood.Remaining, Kept: r.kept(s, o),
			Holders: stood.Holders, MoreHolders: stood.MoreHolders, MoreBytes: stood.MoreBytes, Err: err}
	case mayTry, at.Ahead == 0:
		wait.Ahead, wait.AheadBytes, wait.First = 0, 0, ""
		over, cancel := context.WithCancel(refuse.AfterWait(ctx, wait))
		cancel()
		return r.Reserve(over, bytes, tag)
	}
	return core.Claim{}, r.refuseJob(ctx, tag, bytes, r.budget.Refuse(bytes, tag.OrUntagged(), wait))
}

// room is what a reservation may have now.
type room struct {
	bytes, limit uint64
	// coming: more may come without a call, from the device or the guard.
	coming, refusing bool
}

// never reports whether a job's bytes will not be had: more than the limit, and any on a runtime
// that admits nothing any more.
func (n room) never(o *jobOptions) bool { return o.bytes > n.limit || n.refusing }

// room looks. What the guard holds in quarantine it gives up before a request is refused.
func (r *Runtime) room(ctx context.Context) room {
	_ = r.ReapPending(ctx) // a failure shows in what comes next
	st := r.Stats()
	charged := st.Charged - min(st.Charged, st.Quarantined.Bytes)
	return room{bytes: st.Limit - min(st.Limit, charged), limit: st.Limit, coming: st.Pending.Blocks+st.Quarantined.Blocks > 0, refusing: !r.core.Health().OK}
}

// Alloc allocates n values of T, uninitialised, for the time of the job: from
// its reservation, if it has one. They may be freed earlier, with
// [cuda.Slice.Free]. Errors are those of [cuda.Alloc], and those of every call of
// a job: [core.StreamMisuseError] after its end, and its context's. It does not
// wait for the device.
func Alloc[T cuda.Element](j *Job, n int) (*cuda.Slice[T], error) {
	if err := j.check("Alloc"); err != nil {
		return nil, err
	}
	s := j.state
	slice, err := allocate[T](s, n, j.on.lease.ID())
	if err != nil {
		return nil, err
	}
	if n > 0 {
		s.keep(slice.BlockID())
	}
	return slice, nil
}

// Upload allocates memory for the values, for the time of the job, and enqueues
// the copy. The values must not be changed before the device has copied them:
// when Do returns nil it has. Errors are those of [Alloc] and
// [cuda.CopyToDevice].
func Upload[T cuda.Element](j *Job, values []T) (*cuda.Slice[T], error) {
	slice, err := Alloc[T](j, len(values))
	if err != nil {
		return nil, err
	}
	j.on.busy = true // also after an error: the driver may have begun
	if err := cuda.CopyToDevice(j.state.ctx, slice, j.on.lease.ID(), values); err != nil {
		return nil, err
	}
	return slice, nil
}

// Download copies the values to the host and waits for them, until the job's
// context ends. The memory may be the job's or any other of the runtime. Errors
// are those of [cuda.Download], [core.InvalidRequestError] for a nil slice and one of another
// runtime, and
// those of every call of a job, see [Alloc].
func Download[T cuda.Element](j *Job, from *cuda.Slice[T]) ([]T, error) {
	if err := j.check("Download"); err != nil {
		return nil, err
	}
	if from == nil {
		return nil, &core.InvalidRequestError{Op: "Download", Field: "from", Reason: "nil: pass what Alloc or Upload returned, and see to its error"}
	}
	if of := from.Runtime(); of != nil && of != j.state.rt {
		return nil, foreign("Download", "from", of)
	}
	values := make([]T, from.Len())
	j.on.busy = true
	if err := cuda.CopyToHost(j.state.ctx, values, from, j.on.lease.ID()); err != nil {
		return nil, err
	}
	if err := j.state.waitFor(j.on); err != nil {
		return nil, err
	}
	return values, nil
}

// Arg is an argument of a kernel: a number, or memory together with what the
// kernel does with it. Make one with [Value], [Reads], [Writes] or [ReadWrites].
type Arg struct {
	value    driver.Arg    // of no size if nothing made it
	use      core.Use      // of memory
	of       *core.Runtime // of memory
	nilSlice bool
}

// Reads is memory that the kernel reads.
func Reads[T cuda.Element](s *cuda.Slice[T]) Arg { return argOf(s, core.Read) }

// Writes is memory that the kernel overwrites without reading it.
func Writes[T cuda.Element](s *cuda.Slice[T]) Arg { return argOf(s, core.Write) }

// ReadWrites is memory that the kernel reads and writes.
func ReadWrites[T cuda.Element](s *cuda.Slice[T]) Arg { return argOf(s, core.ReadWrite) }

func argOf[T cuda.Element](s *cuda.Slice[T], access core.Access) Arg {
	if s == nil {
		return Arg{nilSlice: true}
	}
	return Arg{value: s.Arg(), use: s.Use(access), of: s.Runtime()}
}

// Value is a number of the size of T, as the kernel's parameter must be: a Go int
// has no size on the device, so say uint32(n) or int64(n).
func Value[T cuda.Element](v T) Arg {
	var bits uint64 // little-endian, as every host of a CUDA device
	*(*T)(unsafe.Pointer(&bits)) = v
	return Arg{value: driver.Arg{Size: uint8(unsafe.Sizeof(v)), Bits: bits}}
}

// launchLists are of one launch at a time.
type launchLists struct {
	uses []core.Use
	args []driver.Arg
}

// Launch enqueues the kernel on the job's stream with the arguments in the order
// of its parameters, and fences it for the memory among them: it waits, on the
// device, for whatever else uses that memory. Memory that the kernel reaches and
// that is no argument, such as through a pointer in memory, cannot be said here:
// use [cuda.Kernel.Launch] for it, with [Job.Stream]. Launch returns when the
// work is enqueued. The name in traces, logs and findings is the kernel's.
//
// Errors are those of [cuda.Kernel.Launch], [core.InvalidRequestError] for a nil
// kernel or slice, another runtime's slice and an argument that nothing made, and those of
// every call of a job, see [Alloc]. They count arguments from 1: argument 1 is the first
// behind the grid, and the kernel's first parameter.
func (j *Job) Launch(k *cuda.Kernel, grid cuda.Grid, args ...Arg) error {
	if err := j.check("Job.Launch"); err != nil {
		return err
	}
	s := j.state
	lists := &s.calls
	lists.uses, lists.args = lists.uses[:0], lists.args[:0]
	for i := range args {
		a := &args[i]
		if a.value.Size == 0 {
			return notAnArg(i, a.nilSlice)
		}
		if a.use.Access != 0 {
			if a.of != nil && a.of != s.rt {
				return foreign("Job.Launch", argument(i), a.of)
			}
			lists.uses = append(lists.uses, a.use)
		}
		lists.args = append(lists.args, a.value)
	}
	j.on.busy = true
	err := k.Launch(s.ctx, s.rt, j.on.lease, grid, lists.uses, lists.args...)
	if freed, ok := errors.AsType[*core.UseAfterFreeError](err); ok {
		for i := range args {
			if args[i].use.Block.Generation == freed.Generation {
				return fmt.Errorf("a freed slice was passed to Launch as %s: %w", argument(i), err)
			}
		}
	}
	return err
}

// argument is an argument of Job.Launch as its error names it: the first behind the grid is
// argument 1, and is the kernel's first parameter.
func argument(i int) string { return fmt.Sprintf("argument %d", i+1) }

// foreign is the error for another runtime's memory.
func foreign(op, field string, of *core.Runtime) error {
	return &core.InvalidRequestError{Op: op, Field: field, Reason: fmt.Sprintf("the slice belongs to another runtime, %s: use it in a job of that one, or copy it with cuda.CopyFromPeer", of)}
}

func notAnArg(i int, nilSlice bool) error {
	e := &core.InvalidRequestError{Op: "Job.Launch", Field: argument(i), Reason: "empty: make it with Value, Reads, Writes or ReadWrites"}
	if nilSlice {
		e.Reason = "a nil slice: pass what Alloc or Upload returned, and see to its error"
	}
	return e
}

// wait waits until the device has done all that was enqueued through the job
// and its forks, or its context ends. It goes on past errors, and returns the
// first.
func (j *Job) wait() (first error) {
	for _, on := range j.state.streams {
		first = cmp.Or(first, j.state.waitFor(on))
	}
	return first
}

// waitFor makes no call if nothing was enqueued since the last wait.
func (s *jobState) waitFor(on *jobStream) error {
	if !on.busy && !on.handed {
		return nil
	}
	if err := s.pool.Synchronize(s.ctx, on.lease.ID()); err != nil {
		return err
	}
	on.busy = false
	return nil
}

// end gives everything back, past errors, panics of the program's code and the end of the
// context: a client that went away must not cost memory. It does not wait for
// the device: frees are queued behind the work that uses the memory.
func (s *jobState) end() (err error) {
	s.ended.Store(true)
	ctx := s.span.Uncancelled(s.ctx) // the spans still belong to the caller
	defer s.account.End()
	defer func() {
		err = also(err, usercode.Surely(func() error { return s.settle(ctx) }))
	}()
	defer usercode.All(s.streams, func(on *jobStream) {
		err = also(err, usercode.Surely(on.lease.Release))
	})
	return s.freeAll(ctx)
}

// also is err, and more if there is any: an error that is alone stays what it
// is.
func also(err, more error) error {
	switch {
	case more == nil:
		return err
	case err == nil:
		return more
	}
	return errors.Join(err, more)
}

// keep notes a block of the job. When the list has doubled, blocks that are not live any more leave
// it. So a job that runs for hours lists the blocks that it has, and not all that it had.
func (s *jobState) keep(id core.BlockID) {
	if len(s.blocks) >= max(2*s.lived, leastKept) {
		s.blocks = slices.DeleteFunc(s.blocks, func(id core.BlockID) bool { return s.rt.State(id) != core.Live })
		s.lived = len(s.blocks)
	}
	s.blocks = append(s.blocks, id)
}

// leastKept is up to how many blocks a job keeps without asking which are live.
const leastKept = 64

// freeAll frees the blocks that were not freed before. It goes by blocks and
// not by slices, because a view that was forgotten keeps a slice's memory.
func (s *jobState) freeAll(ctx context.Context) error {
	var first error
	held := 0
	usercode.All(s.blocks, func(id core.BlockID) {
		err := usercode.Surely(func() error {
			if s.rt.State(id) != core.Live {
				return nil
			}
			_, err := s.rt.Deallocate(ctx, id)
			return err
		})
		if err != nil {
			held++
			first = cmp.Or(first, err)
		}
	})
	if held == 0 {
		return nil
	}
	return fmt.Errorf("%d blocks of the job %q could not be freed and are held until the runtime ends: %w", held,
		s.tag.OrUntagged(), first)
}
