package admit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/internal/legible"
	"github.com/fencepost-gpu/fencepost/internal/line"
	"github.com/fencepost-gpu/fencepost/internal/refuse"
	"github.com/fencepost-gpu/fencepost/internal/size"
)

// mostBytes is how many bytes a job may say that it uses: sums of them do not overflow.
const mostBytes = 1 << 50

// Config is how a [Gate] works.
type Config struct {
	// Limit is how many bytes the jobs inside may have together; see [Gate.SetLimit].
	Limit uint64
	// Passes is how many jobs may pass one that waits for more bytes than there is room for while
	// it is the first, each of whom fits. 0 serves strictly in the order of their coming.
	Passes int
	// Model is what the gate learns with; several gates may share one. Nil is a new one.
	Model *Model
	// Unknown is how many bytes a job gets as a guess that the model has never seen, the limit at
	// most. 0 is an eighth of the limit; [math.MaxUint64] lets it run alone. Once such a job uses more
	// than the guess, later ones of its name get as much as it has used.
	Unknown uint64
}

// Gate lets jobs in as far as a number of bytes goes. It is safe for concurrent use, has no
// goroutine and needs no close.
type Gate struct {
	model   *Model
	unknown uint64

	mu       sync.Mutex
	ledger   line.Ledger
	waiting  []*Admission // by place
	learners []*Admission // those inside of which nothing was known
	stats    Stats
}

// New makes a gate with nobody inside.
func New(cfg Config) (*Gate, error) {
	if cfg.Passes < 0 {
		return nil, &core.InvalidRequestError{Op: "admit.New", Field: "Passes", Reason: fmt.Sprintf("%d: say how many may pass, or 0", cfg.Passes)}
	}
	if cfg.Model == nil {
		cfg.Model = &Model{}
	}
	return &Gate{model: cfg.Model, unknown: cfg.Unknown, ledger: line.NewLedger(cfg.Limit, cfg.Passes), stats: Stats{Jobs: map[string]Errors{}}}, nil
}

// SetLimit changes how many bytes the jobs inside may have together, for instance to what the
// device has less what others use of it. If they have more, nobody is let in until it is less. A job
// that waits for more than the limit gets the limit when it is alone; one that needs more is
// refused. It does not block.
func (g *Gate) SetLimit(bytes uint64) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ledger.SetLimit(bytes)
	g.tell()
	for place := range g.waiting {
		if a := g.waiting[place]; a != nil && a.Learning() {
			g.ask(place, a)
		}
	}
}

// tell tells those who wait what was decided.
func (g *Gate) tell() {
	for _, d := range g.ledger.Told {
		a := g.waiting[d.Place]
		g.waiting[d.Place] = nil
		a.grant.Reserved = d.Bytes
		if d.Bytes > 0 {
			g.stats.Inside++
			g.stats.Entered++
			if a.Learning() {
				g.learners = append(g.learners, a)
			}
		} else {
			g.stats.Refused++
			a.refused = &NeverFitsError{Job: a.job, Shape: a.shape, Needs: max(1, a.prediction.Low), Limit: g.ledger.Limit(), Runs: a.prediction.Runs}
		}
		close(a.decided)
	}
	g.ledger.Told = g.ledger.Told[:0]
}

// Admission is a job inside. Its methods are safe for concurrent use and do not block. A nil
// Admission holds nothing: Reserved is 0, Observe returns a [core.InvalidRequestError], and the
// others do nothing.
type Admission struct {
	gate       *Gate
	job        string
	shape      Shape
	prediction Prediction
	decided    chan struct{}

	// The rest is under the gate's lock.
	refused  *NeverFitsError
	grant    line.Grant
	peak     uint64
	observed bool
	left     bool
}

// Learning reports whether nothing was known of the job when it asked last to be let in, so that
// its reservation is a guess. It is false of a nil Admission.
func (a *Admission) Learning() bool { return a != nil && a.prediction.Runs == 0 }

// Enter waits until there is room for a job of this name and shape, and reserves what it will need:
// the upper end of what the model predicts, or a guess ([Config].Unknown) if it has never seen the
// job. A job that may need more than the limit reserves the limit: it runs alone. Jobs are served
// in the order of their coming, but for [Config].Passes. While it waits the job has nothing.
//
// Errors are [NeverFitsError] at once, or when the limit is lowered, and that of ctx: after an
// error nothing is held. Without one, [Admission.Leave] or [Admission.Abort] must be called. A job
// that enters again while it is inside may wait for itself.
func (g *Gate) Enter(ctx context.Context, job string, shape Shape) (*Admission, error) {
	const op = "Gate.Enter"
	switch {
	case g == nil || g.model == nil:
		return nil, refuse.Nil(op, "gate", "use what admit.New returned, and see to its error")
	case ctx == nil:
		return nil, refuse.NoContext(ctx, op)
	case ctx.Err() != nil:
		return nil, endError(ctx, job, "did not ask to be let in")
	}
	a := &Admission{gate: g, job: names.Bound(job), shape: shape, prediction: g.model.Predict(job, shape), decided: make(chan struct{})}
	g.mu.Lock()
	place := g.ledger.Ask(g.needs(a))
	if place == len(g.waiting) {
		g.waiting = append(g.waiting, nil)
	}
	g.waiting[place] = a
	g.tell()
	g.mu.Unlock()
	select {
	case <-a.decided:
	case <-ctx.Done():
		g.giveUp(a, place)
		doing := "waited to be let in"
		if a.Learning() {
			doing = "is being learned, and waited to be let in with a guess"
		}
		return nil, endError(ctx, job, doing)
	}
	if a.refused != nil {
		return nil, a.refused
	}
	return a, nil
}

// needs are the bytes that a job asks for, at least and at most. It needs the lock.
func (g *Gate) needs(a *Admission) (least, bytes uint64) {
	if !a.Learning() {
		return a.prediction.Low, a.prediction.Bytes
	}
	bytes = g.unknown
	if bytes == 0 {
		bytes = line.Guess(g.ledger.Limit())
	}
	for _, l := range g.learners {
		if l.job == a.job {
			bytes = max(bytes, l.peak)
		}
	}
	return 0, bytes
}

// ask has a place ask for what is known now. It needs the lock.
func (g *Gate) ask(place int, a *Admission) {
	least, bytes := g.needs(a)
	g.ledger.AskAgain(place, least, bytes)
	g.tell()
}

// askAgain has those ask for what is known now who wait for a job that was not known, when a run of
// it has ended or uses more than was guessed. It needs the lock, and comes before the run gives
// back.
func (g *Gate) askAgain(job string) {
	for place := range g.waiting {
		if a := g.waiting[place]; a != nil && a.job == job && !a.prediction.Known {
			a.prediction = g.model.Predict(job, a.shape)
			g.ask(place, a)
		}
	}
}

// giveUp is the end of a wait, though it may have been decided meanwhile.
func (g *Gate) giveUp(a *Admission, place int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stats.GaveUp++
	switch {
	case g.waiting[place] == a:
		g.waiting[place] = nil
		g.ledger.GiveUp(place)
		g.tell()
	case a.refused == nil:
		a.leave()
	}
}

// endError is the error of a job that was not let in before its context ended.
func endError(ctx context.Context, job, did string) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); !errors.Is(cause, err) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return fmt.Errorf("the job %s %s: %w", legible.Value(job), did, err)
}

// Reserved is how many bytes are set aside for the job now, whether it uses them or not.
func (a *Admission) Reserved() uint64 {
	if a == nil {
		return 0
	}
	a.gate.mu.Lock()
	defer a.gate.mu.Unlock()
	return a.grant.Reserved
}

// Observe tells the gate how many bytes the job uses now: after the library has allocated or freed,
// or from time to time. The most that it was told is the peak that the model learns. More than is
// reserved is taken from what others have left, before those who wait; if that is not enough, the
// error is a [ShortError], once for each growth. The bytes count nevertheless, because they are
// used: nobody is let in until they are there again. After the job has left, and for more than a pebibyte, the error is
// a [core.InvalidRequestError], and nothing is changed.
func (a *Admission) Observe(bytes uint64) error {
	if a == nil {
		return refuse.Nil("Admission.Observe", "admission", "use what Gate.Enter returned, and see to its error")
	}
	g := a.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case a.left:
		return &core.InvalidRequestError{Op: "Admission.Observe", Field: "bytes",
			Reason: fmt.Sprintf("the job %s has left: observe what it uses before", legible.Value(a.job))}
	case bytes > mostBytes:
		return &core.InvalidRequestError{Op: "Admission.Observe", Field: "bytes", Reason: fmt.Sprintf("%d: no device has so many; a difference below zero, perhaps", bytes)}
	}
	grown := a.Learning() && bytes > max(a.peak, a.grant.Reserved)
	a.peak, a.observed = max(a.peak, bytes), true
	if grown {
		g.askAgain(a.job)
	}
	short := g.ledger.Use(&a.grant, bytes)
	g.tell()
	if short > 0 {
		return &ShortError{Job: a.job, Short: short, Used: bytes, Reserved: a.grant.Reserved, Limit: g.ledger.Limit()}
	}
	return nil
}

// Settle gives back what the job turns out not to need: it will use at most so many bytes from now
// on. What it uses counts all the same.
func (a *Admission) Settle(bytes uint64) {
	if a == nil {
		return
	}
	g := a.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ledger.Settle(&a.grant, bytes)
	g.tell()
}

// leave needs the lock.
func (a *Admission) leave() {
	g := a.gate
	a.left = true
	g.ledger.Leave(&a.grant)
	g.stats.Inside--
	g.learners = slices.DeleteFunc(g.learners, func(l *Admission) bool { return l == a })
	g.tell()
}

// Leave gives all back when the job has ended as it should. The model learns its peak, also one of
// 0, if [Admission.Observe] was called. After Leave or [Admission.Abort] it does nothing.
func (a *Admission) Leave() { a.end(true) }

// Abort gives all back when the job was broken off, so that it may have needed more than was
// observed: its peak is learned only if it was more than predicted. After [Admission.Leave] it does
// nothing, so that it may be deferred.
func (a *Admission) Abort() { a.end(false) }

func (a *Admission) end(whole bool) {
	if a == nil {
		return
	}
	g := a.gate
	g.mu.Lock()
	peak, p, left, observed := a.peak, a.prediction, a.left, a.observed
	a.left = true
	g.mu.Unlock()
	if left {
		return
	}
	learns := whole && observed || peak > p.Bytes
	if learns {
		g.model.Observe(a.job, a.shape, peak)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if learns {
		if p.Known {
			g.stats.count(a.job, p.Bytes, peak)
		}
		g.askAgain(a.job)
	}
	a.leave()
}

// Stats are the numbers of a gate. Sizes are bytes.
type Stats struct {
	// Limit is the limit, and Charged what those inside have reserved or use of it.
	Limit, Charged uint64
	// Inside and Waiting are how many are so now. Learning is how many of those inside hold a guess,
	// because nothing was known of them.
	Inside, Waiting, Learning int
	// Entered, Refused and GaveUp are how many were let in, were refused because they never fit, and
	// gave up waiting.
	Entered, Refused, GaveUp uint64
	// Errors are those of all predictions that were known, and Jobs has those of the first 256 names.
	Errors Errors
	Jobs   map[string]Errors
}

// Errors say how often predictions were wrong, and by how much.
type Errors struct {
	// Runs is how many jobs have left, and PeakBytes the sum of their peaks.
	Runs, PeakBytes uint64
	// Under is how many of them needed more than predicted, and UnderBytes by how much in all.
	Under, UnderBytes uint64
	// OverBytes is how much less the others needed, in all.
	OverBytes uint64
}

func (e *Errors) add(predicted, peak uint64) {
	e.Runs++
	e.PeakBytes += peak
	if peak > predicted {
		e.Under++
		e.UnderBytes += peak - predicted
	} else {
		e.OverBytes += predicted - peak
	}
}

func (s *Stats) count(job string, predicted, peak uint64) {
	s.Errors.add(predicted, peak)
	if of, ok := s.Jobs[job]; ok || len(s.Jobs) < kinds {
		of.add(predicted, peak)
		s.Jobs[job] = of
	}
}

// Stats are the numbers as they are now. It does not block.
func (g *Gate) Stats() Stats {
	if g == nil {
		return Stats{}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.stats
	s.Limit, s.Charged, s.Waiting = g.ledger.Limit(), g.ledger.Given(), g.ledger.Waiting()
	s.Learning = len(g.learners)
	s.Jobs = maps.Clone(s.Jobs)
	return s
}

// NeverFitsError refuses a job that needs more than the limit, even by the lower end of what is
// predicted. Sizes are bytes.
type NeverFitsError struct {
	Job   string
	Shape Shape
	// Needs is what it needs at least, learned from so many Runs.
	Needs, Limit uint64
	Runs         int
}

// Error says what is missing, and what to do.
func (e *NeverFitsError) Error() string {
	if e.Runs == 0 {
		return fmt.Sprintf("the job %s%v needs memory, and the limit is %s: raise it", legible.Value(e.Job), e.Shape,
			size.Of(e.Limit))
	}
	of := size.Figures(e.Needs, e.Needs-e.Limit, e.Limit)
	return fmt.Sprintf("the job %s%v needs at least %s, as its last %d runs say, which is %s more than the limit of %s: give it a smaller shape, raise the limit, or have the model forget the job if it needs less now",
		legible.Value(e.Job), e.Shape, of(e.Needs), e.Runs, of(e.Needs-e.Limit), of(e.Limit))
}

// ShortError says that a job uses more than there is. Sizes are bytes.
type ShortError struct {
	Job string
	// Short is how many of the bytes there was no room for.
	Short, Used, Reserved, Limit uint64
}

// Error says what is missing, and what to do.
func (e *ShortError) Error() string {
	of := size.Figures(e.Used, e.Reserved, e.Limit, e.Short)
	return fmt.Sprintf("the job %s uses %s of %s reserved, and of the limit of %s there were %s too few left: free something, or end it",
		legible.Value(e.Job), of(e.Used), of(e.Reserved), of(e.Limit), of(e.Short))
}

// String is " of rows 100 and columns 5".
func (s Shape) String() string {
	var b strings.Builder
	for i, name := range s.names {
		if name != "" {
			fmt.Fprintf(&b, "%s%s %d", []string{" of ", " and "}[i], legible.Text(name), s.numbers[i])
		}
	}
	return b.String()
}
