package runtimes_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// The sizes of the table of jobs: two blocks fill the budget with their red zones, and a job reserves most of one.
// An admitted job of which nothing is known reserves an eighth of the budget.
const (
	shortBudget = 16 << 20
	shortBlock  = 7<<20 + 512<<10
	shortJob    = 7 << 20
)

// A job's wait ends at jobWait, its context at jobEnd and the device's work at jobWork, or at jobLag if it is on the
// stream whose quarantine is given up. Time stands still while anything runs.
const (
	never   = 0
	jobWork = 100*time.Millisecond + 300*time.Microsecond
	jobLag  = 200*time.Millisecond + 300*time.Microsecond
	jobEnd  = 300*time.Millisecond + 300*time.Microsecond
	jobWait = 500 * time.Millisecond
)

// shortJobs is a runtime whose memory is short, and what was noted of the job that waits for it.
type shortJobs struct {
	*testing.T
	rt          *fencepost.Runtime
	guard       fencepost.GuardMode
	mine, other core.StreamID
	handles     map[core.StreamID]driver.Stream

	mu     sync.Mutex
	noting bool
	asked  []string
	told   []string
}

// Put notes the refusals.
func (s *shortJobs) Put(rec logging.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case rec.Event.Op != oplog.OpRefusal || !s.noting:
	case rec.Event.Relieved:
		s.told = append(s.told, "[cured]")
	default:
		s.told = append(s.told, "[told]")
	}
}

func (s *shortJobs) Flush(context.Context) error { return nil }
func (s *shortJobs) Close(context.Context) error { return nil }
func (s *shortJobs) Dropped() uint64             { return 0 }

// note begins or ends to note what is asked.
func (s *shortJobs) note(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noting = on
}

// ask notes a call, and how it ended.
func (s *shortJobs) ask(what string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		what += "!"
	}
	if s.noting {
		s.asked = append(s.asked, what)
	}
}

// jobRecorder is a layer around the budget that notes the calls.
type jobRecorder struct {
	core.Resource
	s *shortJobs
}

func (r *jobRecorder) Unwrap() core.Resource { return r.Resource }

func (r *jobRecorder) Deallocate(ctx context.Context, id core.BlockID) (core.Block, error) {
	b, err := r.Resource.Deallocate(ctx, id)
	r.s.ask("free", err)
	return b, err
}

func (r *jobRecorder) Reserve(ctx context.Context, bytes uint64, tag core.Tag) (core.Claim, error) {
	c, err := r.Resource.Reserve(ctx, bytes, tag)
	r.s.ask("claim", err)
	return c, err
}

func (r *jobRecorder) Allocate(ctx context.Context, req core.Request) (core.Block, error) {
	b, err := r.Resource.Allocate(ctx, req)
	r.s.ask("ask", err)
	return b, err
}

func (r *jobRecorder) ReleaseClaim(ctx context.Context, id core.ClaimID) error {
	r.s.ask("release", nil) // before it wakes a job
	return r.Resource.ReleaseClaim(ctx, id)
}

func (r *jobRecorder) ReapPending(ctx context.Context) error {
	err := r.Resource.ReapPending(ctx)
	r.s.ask("reap", err)
	return err
}

func openShortJobs(t *testing.T, backend fencepost.Backend, guard fencepost.GuardMode, recorded bool) *shortJobs {
	t.Helper()
	s := &shortJobs{T: t, guard: guard, handles: map[core.StreamID]driver.Stream{}}
	cfg := fencepost.Config{Device: fencepost.Sim, Resource: backend, Budget: shortBudget, Guard: guard,
		Patience: time.Second, LogSinks: []logging.Sink{s}, TimeOneIn: -1, Streams: 8,
		GuardConfig: debugguard.Config{QuarantineBytes: 4 * shortBudget, QuarantineAge: -1,
			Advanced: debugguard.Advanced{UpkeepInterval: -1, Hunt: debugguard.HuntConfig{Canaries: -1}}}}
	cfg.Pool.ReapInterval, cfg.Async.ReapInterval = -1, -1
	if recorded {
		record := func(up core.Resource) (core.Resource, error) { return &jobRecorder{up, s}, nil }
		cfg.Layers.AroundBudget = []core.Layer{record}
	}
	s.rt = e2e.Open(t, cfg)
	for _, to := range []*core.StreamID{&s.mine, &s.other} {
		l := e2e.Lease(t, s.rt, "lease")
		*to = l.ID()
		s.handles[*to] = l.Handle()
	}
	return s
}

func (s *shortJobs) quarantines() bool { return s.guard != "off" && s.guard != "ledger" }

// held is a block that lives until the end.
func (s *shortJobs) held() {
	b := e2e.Allocate(s.T, s.rt, shortBlock, s.other, "held")
	s.Cleanup(func() { e2e.Free(s.T, s.rt, b) })
}

// pending has a block freed that the device comes to after a time, or never.
func (s *shortJobs) pending(after time.Duration) {
	s.held()
	b := e2e.Allocate(s.T, s.rt, shortBlock, s.other, "pending")
	s.hold(s.other, after)
	s.forwarded(b)
}

// forwarded frees a block so that it is not in quarantine.
func (s *shortJobs) forwarded(b core.Block) {
	s.Helper()
	if s.quarantines() {
		ledger := fencepost.GuardLedger
		must.Do(s, s.rt.SwitchGuard(s.Context(), fencepost.GuardChange{Mode: &ledger}))
	}
	e2e.Free(s.T, s.rt, b)
	if s.quarantines() {
		must.Do(s, s.rt.SwitchGuard(s.Context(), fencepost.GuardChange{Mode: &s.guard}))
	}
}

// quarantined has a block in quarantine, if the guard has one. The device lags behind what the guard enqueues for it.
func (s *shortJobs) quarantined() {
	s.held()
	b := e2e.Allocate(s.T, s.rt, shortBlock, s.mine, "freed")
	synctest.Wait()
	e2e.Free(s.T, s.rt, b)
	synctest.Wait()
	if s.quarantines() {
		s.hold(s.mine, jobLag)
	}
}

// mixed has half of it in quarantine and half pending.
func (s *shortJobs) mixed() {
	s.held()
	quarantined := e2e.Allocate(s.T, s.rt, shortBlock/2, s.mine, "freed")
	pending := e2e.Allocate(s.T, s.rt, shortBlock/2, s.other, "freed")
	s.hold(s.other, jobWork)
	s.forwarded(pending)
	synctest.Wait()
	e2e.Free(s.T, s.rt, quarantined)
	synctest.Wait()
	if s.quarantines() {
		s.hold(s.mine, jobLag)
	}
}

// hold gives a stream work that ends after a time, or with the test if that is never.
func (s *shortJobs) hold(on core.StreamID, after time.Duration) {
	s.Helper()
	end := e2e.Hold(s.T, s.rt, s.handles[on])
	if after != never {
		later := time.AfterFunc(after, end)
		s.Cleanup(func() { later.Stop() })
	}
}

// holder is a job that has a reservation for a time, or until the test ends.
func (s *shortJobs) holder(after time.Duration) {
	s.held()
	began, done := make(chan struct{}), make(chan struct{})
	leave := sync.OnceFunc(func() { close(done) })
	var jobs sync.WaitGroup
	jobs.Go(func() {
		err := s.rt.Do(s.Context(), "holder", func(*fencepost.Job) error {
			close(began)
			<-done
			return nil
		}, fencepost.Reserve(shortJob, 0))
		if err != nil {
			s.Error(err)
		}
	})
	<-began
	s.Cleanup(jobs.Wait)
	s.Cleanup(leave)
	if after != never {
		later := time.AfterFunc(after, leave)
		s.Cleanup(func() { later.Stop() })
	}
}

// beyond has room for the guess of an admitted job, and more pending.
func (s *shortJobs) beyond() {
	s.held()
	b := e2e.Allocate(s.T, s.rt, 5<<20, s.other, "pending")
	s.hold(s.other, jobWork)
	s.forwarded(b)
}

// allocates is the work of a job that allocates more than its reservation.
func allocates(j *fencepost.Job) error {
	_, err := fencepost.Alloc[byte](j, shortJob)
	return err
}

// ahead is a job that waits in line for more than comes free.
func (s *shortJobs) ahead() {
	s.held()
	ctx, cancel := context.WithCancel(s.Context())
	var jobs sync.WaitGroup
	jobs.Go(func() { _ = s.rt.Do(ctx, "ahead", nothing, fencepost.Reserve(10<<20, time.Hour)) })
	s.Cleanup(jobs.Wait)
	s.Cleanup(cancel)
	synctest.Wait()
}

func (s *shortJobs) pendingEnds()  { s.pending(jobWork) }
func (s *shortJobs) pendingStays() { s.pending(never) }
func (s *shortJobs) holderEnds()   { s.holder(jobWork) }
func (s *shortJobs) holderStays()  { s.holder(never) }

// jobShortage is a situation of a job, and how it asks.
type jobShortage struct {
	name    string
	set     func(*shortJobs)
	ends    bool // the job's context, first
	options []fencepost.JobOption
	work    func(*fencepost.Job) error
	// rows are: backends | modes of the guard | who was asked | what the caller heard. A plus is for what was
	// repeated, an exclamation mark for what failed. "late" is a job that waited and got its reservation.
	rows []string
}

// row is the part of a row behind a backend and a mode, which has one row.
func (of jobShortage) row(backend fencepost.Backend, guard fencepost.GuardMode) (found string) {
	for _, row := range of.rows {
		columns := strings.Split(row, "|")
		has := func(i int, word string) bool { return slices.Contains(strings.Fields(columns[i]), word) }
		if has(0, string(backend)) && has(1, string(guard)) {
			found += strings.TrimSpace(columns[2]) + " | " + strings.TrimSpace(columns[3])
		}
	}
	return found
}

var (
	waits   = []fencepost.JobOption{fencepost.Reserve(shortJob, jobWait)}
	atOnce  = []fencepost.JobOption{fencepost.Reserve(shortJob, 0)}
	admits  = []fencepost.JobOption{fencepost.Admit()}
	tooMuch = []fencepost.JobOption{fencepost.Reserve(shortBudget+1, jobWait)}
)

var jobShortages = []jobShortage{
	{"pending, ends", (*shortJobs).pendingEnds, false, waits, nothing, []string{
		"pool  | off ledger sample:1 hunt | claim        | ok",
		"async | off ledger sample:1 hunt | reap+, claim | ok late",
	}},
	{"pending, ends, at once", (*shortJobs).pendingEnds, false, atOnce, nothing, []string{
		"pool  | off ledger sample:1 hunt | claim        | ok",
		"async | off ledger sample:1 hunt | reap, claim! | OutOfBudget [told] refusals:1",
	}},
	{"pending, ends, admitted", (*shortJobs).pendingEnds, false, admits, nothing, []string{
		"pool  | off ledger sample:1 hunt | claim        | ok",
		"async | off ledger sample:1 hunt | reap+, claim | ok late",
	}},
	{"pending, stays", (*shortJobs).pendingStays, false, waits, nothing, []string{
		"pool  | off ledger sample:1 hunt | claim         | ok",
		"async | off ledger sample:1 hunt | reap+, claim! | OutOfBudget waited [told] refusals:1",
	}},
	{"pending, context ends", (*shortJobs).pendingStays, true, waits, nothing, []string{
		"pool  | off ledger sample:1 hunt | claim | ok",
		"async | off ledger sample:1 hunt | reap+ | DeadlineExceeded waited",
	}},
	{"pending, context ends, admitted", (*shortJobs).pendingStays, true, admits, nothing, []string{
		"pool  | off ledger sample:1 hunt | claim        | ok",
		"async | off ledger sample:1 hunt | reap+, claim | ok late",
	}},
	{"quarantine", (*shortJobs).quarantined, false, waits, nothing, []string{
		"pool  | off ledger    | claim                     | ok",
		"pool  | sample:1 hunt | reap+, free, reap, claim  | ok [cured]",
		"async | off ledger    | reap+, claim              | ok",
		"async | sample:1 hunt | reap+, free, reap+, claim | ok late [cured] waits:1",
	}},
	{"quarantine, at once", (*shortJobs).quarantined, false, atOnce, nothing, []string{
		"pool  | off ledger    | claim                    | ok",
		"async | off ledger    | reap, claim              | ok",
		"pool  | sample:1 hunt | reap, free, reap, claim  | ok [cured]",
		"async | sample:1 hunt | reap, free, reap, claim! | OutOfBudget [told] refusals:1",
	}},
	{"quarantine, admitted", (*shortJobs).quarantined, false, admits, nothing, []string{
		"pool  | off ledger    | claim                     | ok",
		"pool  | sample:1 hunt | reap+, free, reap, claim  | ok [cured]",
		"async | off ledger    | reap+, claim              | ok",
		"async | sample:1 hunt | reap+, free, reap+, claim | ok late [cured] waits:1",
	}},
	{"quarantine and pending", (*shortJobs).mixed, false, waits, nothing, []string{
		"pool  | off ledger    | claim                     | ok",
		"pool  | sample:1 hunt | reap+, free, reap, claim  | ok [cured]",
		"async | off ledger    | reap+, claim              | ok late",
		"async | sample:1 hunt | reap+, free, reap+, claim | ok late [cured] waits:1",
	}},
	{"quarantine and pending, at once", (*shortJobs).mixed, false, atOnce, nothing, []string{
		"pool  | off ledger    | claim                    | ok",
		"pool  | sample:1 hunt | reap, free, reap, claim  | ok [cured]",
		"async | off ledger    | reap, claim!             | OutOfBudget [told] refusals:1",
		"async | sample:1 hunt | reap, free, reap, claim! | OutOfBudget [told] refusals:1",
	}},
	{"larger than the limit", (*shortJobs).mixed, false, tooMuch, nothing, []string{
		"pool async | off ledger sample:1 hunt | reap, claim! | OutOfBudget [told] refusals:1",
	}},
	{"another job holds it, ends", (*shortJobs).holderEnds, false, waits, nothing, []string{
		"pool async | off ledger sample:1 hunt | reap+, release, reap, claim | ok late",
	}},
	{"another job holds it, stays", (*shortJobs).holderStays, false, waits, nothing, []string{
		"pool async | off ledger sample:1 hunt | reap+, claim! | OutOfBudget waited [told] refusals:1",
	}},
	{"another job waits before it", (*shortJobs).ahead, false, waits, nothing, []string{
		"pool async | off ledger sample:1 hunt | reap+ | OutOfBudget waited ahead [told] refusals:1",
	}},
	{"an admitted job needs more", (*shortJobs).beyond, false, admits, allocates, []string{
		"pool  | off ledger sample:1 hunt | claim, reap, release, ask        | ok",
		"async | off ledger sample:1 hunt | claim, reap, release, reap+, ask | ok late [cured] waits:1",
	}},
}

// play makes a situation, and runs the job.
func (of jobShortage) play(t *testing.T, backend fencepost.Backend, guard fencepost.GuardMode,
	recorded bool) (asked, heard string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := openShortJobs(t, backend, guard, recorded)
		of.set(s)
		synctest.Wait()
		ctx := s.Context()
		if of.ends {
			ending, cancel := context.WithTimeout(ctx, jobEnd)
			defer cancel()
			ctx = ending
		}
		before, began := s.rt.Stats(), time.Now()
		s.note(true)
		err := s.rt.Do(ctx, "job", func(j *fencepost.Job) error {
			defer s.note(false) // the job gives back what it has
			return of.work(j)
		}, of.options...)
		took := time.Since(began)
		synctest.Wait()
		s.note(false)
		asked, heard = e2e.Repeats(s.asked), s.heard(err, took, before)
	})
	return asked, heard
}

// heard is what the caller heard, the events of refusals, and what was counted.
func (s *shortJobs) heard(err error, took time.Duration, before core.Stats) string {
	var words []string
	add := func(is bool, word string) {
		if is {
			words = append(words, word)
		}
	}
	var wait core.Wait
	if short, ok := errors.AsType[*core.OutOfBudgetError](err); ok {
		wait = short.Wait
	} else if waited, ok := errors.AsType[*core.WaitError](err); ok {
		wait = waited.Wait
	}
	after := s.rt.Stats()
	add(err == nil, "ok")
	add(errors.Is(err, core.ErrOutOfBudget), "OutOfBudget")
	add(errors.Is(err, context.DeadlineExceeded), "DeadlineExceeded")
	add(err == nil && took > 0, "late")
	add(wait.For > 0, "waited")
	add(wait.Pending > 0, "for pending")
	add(wait.Ahead > 0, "ahead")
	words = append(words, s.told...)
	add(after.Refusals != before.Refusals, fmt.Sprint("refusals:", after.Refusals-before.Refusals))
	add(after.MemoryWaits != before.MemoryWaits, fmt.Sprint("waits:", after.MemoryWaits-before.MemoryWaits))
	return strings.Join(words, " ")
}

// Package stackconformance has the table of requests without a job. Each job runs twice, with a layer that records
// what the budget is asked, and without it.
func TestAJobIsAnsweredAsTheTableSaysWhenMemoryIsShort(t *testing.T) {
	defer monotime.SystemOnly()()
	for _, of := range jobShortages {
		t.Run(of.name, func(t *testing.T) {
			for _, backend := range e2e.Backends() {
				for _, guard := range []fencepost.GuardMode{"off", "ledger", "sample:1", "hunt"} {
					asked, heard := of.play(t, backend, guard, true)
					if got, want := asked+" | "+heard, of.row(backend, guard); got != want {
						t.Errorf("%s | %s | %s, want %q", backend, guard, got, want)
					}
					if _, bare := of.play(t, backend, guard, false); bare != heard {
						t.Errorf("%s | %s: without the layer that records %q, with it %q", backend, guard, bare, heard)
					}
				}
			}
		})
	}
}
