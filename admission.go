package fencepost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/fencepost-gpu/fencepost/admit"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/internal/deadline"
	"github.com/fencepost-gpu/fencepost/internal/legible"
	"github.com/fencepost-gpu/fencepost/internal/line"
	"github.com/fencepost-gpu/fencepost/internal/size"
	"github.com/fencepost-gpu/fencepost/internal/usercode"
	"github.com/fencepost-gpu/fencepost/internal/wholefile"
)

// Admit reserves for a job, before it begins, what the last jobs of its name and [Shape] have needed: the upper end of what
// [Config].Learned predicts, of the most bytes that were live at once as they were asked for. The job waits for them as
// with [Reserve], in the same line, until its context ends. What it turns out to need is learned when it has ended without
// an error, or needed more.
//
// A job that needs more than that takes it from the budget, if there is room, and is refused otherwise: room is kept for the one of
// those inside that may need the most beyond its reservation. It never waits
// for memory while it has some, so that no two jobs wait for each other. What it will not need it may give back; see [Job.Settle].
//
// A job of which nothing is known is being learned: it reserves an eighth of the budget's limit as
// a guess, or as much as a job of its name has needed that is being learned now. Others run beside
// it. A job that is known to need nothing reserves nothing. With [Reserve] the first jobs have that
// guess instead: Reserve's bytes count until something is known, and its bound on the wait for
// good. A job that is admitted from within another one may wait for that. If even the lower end of
// what is predicted is more than the budget's limit the job is refused with a
// [admit.NeverFitsError] and a [core.OutOfBudgetError]. If only the upper end is more than will
// come free, because no other job holds a reservation, it gets what there is: so a job that
// allocates for ever should give its reservation back when it has what it needs.
func Admit() JobOption { return func(o *jobOptions) { o.admit = true } }

// Shape says a number that the memory of a job depends on, such as its rows, for [Admit]; without that it is
// learned what jobs of this shape need, and nothing else. A job has at most two. The name comes from a small fixed
// set, and a negative number counts as zero.
func Shape(name string, n int) JobOption {
	return func(o *jobOptions) {
		switch o.dimensions++; o.dimensions {
		case 1:
			o.shape = admit.ShapeOf(name, n)
		case 2:
			o.shape = o.shape.And(name, n)
		}
	}
}

// forecast is what is known of a job before it begins.
type forecast struct {
	shape admit.Shape
	admit.Prediction
	// admitted: the job may take from the budget what it needs beyond its reservation.
	admitted bool
}

// learning reports whether nothing is known yet of what an admitted job needs, so that its
// reservation is a guess.
func (f *forecast) learning() bool { return f != nil && f.admitted && f.Runs == 0 }

// surprise is how much more than predicted the job may need.
func (f *forecast) surprise() uint64 {
	if f == nil || !f.admitted {
		return 0
	}
	return f.High - min(f.High, f.Bytes)
}

// inside are the jobs that have a reservation, and those that are being learned.
type inside struct {
	mu sync.Mutex
	// surprises are those of the jobs with a reservation, ascending: 0 of one that was not admitted. Few jobs need
	// more than was predicted, so that room is kept free for the largest alone.
	surprises []uint64
	// pieces is jobPieces if the budget is a share of the device, and else zero.
	pieces atomic.Uint64
	// learners are the admitted jobs that began when nothing was known of their kind, from their
	// wait to their end.
	learners []*jobState
}

// holds notes that a job has a reservation.
func (in *inside) holds(surprise uint64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	at, _ := slices.BinarySearch(in.surprises, surprise)
	in.surprises = slices.Insert(in.surprises, at, surprise)
}

// releases notes that a job has none any more.
func (in *inside) releases(surprise uint64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if at, ok := slices.BinarySearch(in.surprises, surprise); ok {
		in.surprises = slices.Delete(in.surprises, at, at+1)
	}
}

// noneHolds reports whether no job has a reservation.
func (in *inside) noneHolds() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.surprises) == 0
}

// jobPieces is how many bytes of a share of the device stay free for each admitted job, because
// free memory lies in pieces beside the blocks of its streams. It was measured with jobs of 2 to 30
// MiB.
const jobPieces = 4 << 20

// headroom is how many bytes stay free beside an admitted job with that surprise. It is zero while
// no job holds a reservation. Else it covers the largest surprise of one job, and, in a share of
// the device, pieces of memory. It is a quarter of the limit at most.
func (in *inside) headroom(surprise, limit uint64) uint64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	n := len(in.surprises)
	if n == 0 {
		return 0
	}
	return min(max(surprise, in.surprises[n-1], uint64(n+1)*in.pieces.Load()), limit/4)
}

// guess is what to reserve for a job of which nothing is known: [line.Guess], or the most that a
// job of its name has used which is still being learned.
func (in *inside) guess(s *jobState, limit uint64) uint64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	guess := line.Guess(limit)
	for _, l := range in.learners {
		if l.tag == s.tag {
			guess = max(guess, l.account.Read().Requested)
		}
	}
	return min(guess, limit)
}

// learns notes that a job is being learned.
func (in *inside) learns(s *jobState) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.learners = append(in.learners, s)
}

// learned notes that it is no more.
func (in *inside) learned(s *jobState) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.learners = slices.DeleteFunc(in.learners, func(l *jobState) bool { return l == s })
}

// learning counts the jobs that are being learned.
func (in *inside) learning() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.learners)
}

// foresee looks up what the job will need, and turns that into a reservation.
func (r *Runtime) foresee(s *jobState, o *jobOptions) error {
	if o.dimensions > 2 {
		return &core.InvalidRequestError{Op: "Do", Field: "Shape", Reason: fmt.Sprintf("%d of them: a job has at most two; multiply those that grow together", o.dimensions)}
	}
	f := &forecast{shape: o.shape, admitted: o.admit}
	s.forecast = f
	err := r.predict(s, o)
	if f.learning() {
		r.inside.learns(s)
	}
	return err
}

// predict may be called again when something was learned.
func (r *Runtime) predict(s *jobState, o *jobOptions) error {
	f := s.forecast
	f.Prediction = r.learned.model.Predict(string(s.tag), f.shape)
	if f.Known {
		s.account.Note(func(a *core.JobAccount) { a.Predicted = f.Bytes })
	}
	if !o.admit {
		return nil
	}
	limit := r.budget.Limit()
	if f.Runs == 0 {
		if o.guess || !o.reserve {
			f.Bytes, f.High = r.inside.guess(s, limit), limit
			o.guess, o.reserve, o.bytes, o.wait = true, true, f.Bytes, math.MaxInt64
		}
		return nil
	}
	if f.Low > limit {
		never := &admit.NeverFitsError{Job: string(s.tag.OrUntagged()), Shape: f.shape, Needs: f.Low, Limit: limit, Runs: f.Runs}
		refusal := r.budget.Refuse(f.Low, s.tag.OrUntagged(), core.Wait{})
		if refusal == nil { // the limit was raised meanwhile
			return r.predict(s, o)
		}
		return r.refuseJob(s.ctx, s.tag, f.Low, fmt.Errorf("%w: %w", never, refusal))
	}
	if !o.reserve {
		o.wait = math.MaxInt64
	}
	if o.guess {
		r.inside.learned(s)
	}
	o.guess, o.reserve, o.least, o.bytes = false, f.Bytes > 0, max(1, f.Low), min(f.Bytes, limit)
	return nil
}

// refuseJob tells the log that a job is refused its reservation, and counts the call that was not
// made: the budget has counted its refusal.
func (r *Runtime) refuseJob(ctx context.Context, tag core.Tag, bytes uint64, err error) error {
	return r.observer.AnswerReserve(ctx, bytes, tag, func(ctx context.Context) error {
		r.refusals.Emit(ctx, oplog.Event{Op: oplog.OpRefusal, Layer: "job", Time: time.Now(), Ordinal: r.Ordinal(),
			Tag:       tag.OrUntagged(),
			Requested: bytes, Bytes: bytes, Span: core.SpanOf(ctx), Err: err})
		return err
	})
}

// Settle gives back what is left of the job's reservation, for other jobs: the job has allocated what it needs, or most of it. What it
// frees from then on does not return to it, and what it allocates comes from the rest of the budget. Without a reservation it does
// nothing. Errors are those of every call of a job, see [Alloc]. It does not block.
func (j *Job) Settle() error {
	if err := j.check("Job.Settle"); err != nil {
		return err
	}
	return j.state.settle(j.state.ctx)
}

// settle may be called again after an error or a panic of the program's code. A claim that is not
// open any more was released by then.
func (s *jobState) settle(ctx context.Context) error {
	if s.claim.ID == 0 {
		return nil
	}
	if err := s.rt.ReleaseClaim(ctx, s.claim.ID); err != nil && !errors.Is(err, core.ErrInvalidRequest) {
		return err
	}
	s.claim = core.Claim{}
	s.account.Unreserve()
	s.owner.inside.releases(s.forecast.surprise())
	s.owner.line.Wake() // the release did not, if nothing was left
	return nil
}

// allocate allocates from the job's reservation, or beyond that from the rest of the budget if the job was admitted.
func allocate[T cuda.Element](s *jobState, n int, on core.StreamID) (*cuda.Slice[T], error) {
	options := cuda.AllocOptions{Stream: on, Tag: s.tag, Claim: s.claim.ID, Account: s.account}
	if s.claim.ID == 0 || s.forecast == nil || !s.forecast.admitted {
		return cuda.Alloc[T](s.ctx, s.memory, n, options)
	}
	var of T
	bytes, reserved := uint64(max(n, 0))*uint64(unsafe.Sizeof(of)), s.claim.Bytes
	beyond := func() (*cuda.Slice[T], error) {
		if s.owner.room(s.ctx).bytes < bytes { // together with what is left of the reservation it may do
			if err := s.settle(s.ctx); err != nil {
				return nil, err
			}
		}
		options.Claim = 0
		slice, err := cuda.Alloc[T](s.ctx, s.memory, n, options)
		if errors.Is(err, core.ErrOutOfBudget) {
			err = fmt.Errorf("the job %s needs more than the %s that were reserved for it, and there is no room for that: %w",
				legible.Value(s.tag.OrUntagged()), size.Of(reserved), err)
		}
		return slice, err
	}
	if s.account.Live()+bytes > reserved {
		return beyond()
	}
	slice, err := cuda.Alloc[T](s.ctx, s.memory, n, options)
	if errors.Is(err, core.ErrClaimExceeded) { // what was freed on a fork's stream is not back yet
		return beyond()
	}
	return slice, err
}

// learned is what is known of jobs, and where that is kept.
type learned struct {
	model   *admit.Model
	file    string
	changed atomic.Bool
}

// learnedFiles are the models of the files that runtimes of this process have open, by the path
// behind all symbolic links: several runtimes with one file learn together.
var learnedFiles = learnedTable{byPath: map[string]*learnedFile{}}

type learnedTable struct {
	mu     sync.Mutex
	byPath map[string]*learnedFile
}

type learnedFile struct {
	model *admit.Model
	users int
}

// openLearnedFile reads a file, or shares the model of one that is open. Errors are those of
// [admit.Load]: for a file that is damaged, or not there yet, there is a model of nothing too.
func openLearnedFile(path string) (*admit.Model, error) {
	l := &learnedFiles
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := l.byPath[path]; f != nil {
		f.users++
		return f.model, nil
	}
	model, err := admit.Load(path)
	switch {
	case errors.Is(err, admit.ErrModelFile), errors.Is(err, fs.ErrNotExist):
		model = new(admit.Model)
	case err != nil:
		return nil, err
	}
	l.byPath[path] = &learnedFile{model, 1}
	return model, err
}

// closeLearnedFile gives a model up: after the last of its runtimes the file is read anew.
func closeLearnedFile(path string) {
	l := &learnedFiles
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := l.byPath[path]; f.users > 1 {
		f.users--
	} else {
		delete(l.byPath, path)
	}
}

// openLearned reads the file, if there is one, and makes its folder. A file that is damaged is told
// of, and written anew. One that could not be written at the end is an error now.
func (r *Runtime) openLearned(cfg Config) error {
	l := &r.learned
	if l.model = cfg.Learned; cfg.LearnedFile == "" {
		l.model = cmp.Or(l.model, new(admit.Model))
		return nil
	}
	logger := usercode.Logger(cmp.Or(cfg.Findings.Logger, slog.Default()))
	var err error
	if l.file, err = filepath.Abs(cfg.LearnedFile); err != nil {
		return invalid("LearnedFile", err.Error())
	}
	file, err := wholefile.Target(l.file)
	if err != nil {
		return invalid("LearnedFile", err.Error())
	}
	var model *admit.Model
	if l.model == nil {
		if model, err = openLearnedFile(file); model != nil {
			l.model = model
			r.onClose(func(context.Context) error { closeLearnedFile(file); return nil })
		}
	} else {
		_, err = admit.Load(l.file) // is added to
	}
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist):
	case !errors.Is(err, admit.ErrModelFile):
		return invalid("LearnedFile", err.Error())
	case model != nil:
		logger.Warn("fencepost: what jobs need is learned anew", "error", err)
	}
	if err = wholefile.Ready(l.file); err != nil {
		return invalid("LearnedFile", fmt.Sprintf("%v: name a file in a folder that this process may write to", err))
	}
	r.onClose(func(ctx context.Context) error { return deadline.Within(ctx, l.save) })
	if cfg.inBackground() {
		r.onClose(every(time.Minute, func(time.Time) {
			if err := l.save(); err != nil {
				logger.Warn("fencepost: what jobs need could not be saved", "error", err)
			}
		}))
	}
	return nil
}

// save writes the file, if something was learned since it was written.
func (l *learned) save() error {
	if !l.changed.Swap(false) {
		return nil
	}
	err := l.model.Save(l.file)
	if err != nil {
		l.changed.Store(true)
	}
	return err
}

// learn learns from a job that has ended. One that was broken off may have needed more than it had.
func (l *learned) learn(s *jobState, a *core.JobAccount, whole bool) {
	f := s.forecast
	if f == nil || !whole && (f.Runs == 0 || a.Requested <= f.Bytes) {
		return
	}
	l.model.Observe(string(s.tag), f.shape, a.Requested)
	if !l.changed.Load() {
		l.changed.Store(true)
	}
}
