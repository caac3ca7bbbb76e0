package runtimes_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/admit"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
	"github.com/fencepost-gpu/fencepost/traces"
)

// needing is work that has so many bytes live at once, in two blocks.
func needing(bytes int) func(*fencepost.Job) error {
	return func(j *fencepost.Job) error {
		for _, n := range []int{bytes / 3, bytes - bytes/3} {
			if _, err := fencepost.Alloc[byte](j, n); err != nil {
				return err
			}
		}
		return nil
	}
}

// taught is a runtime that knows jobs of the name "sort", which need ten bytes a row.
func taught(t *testing.T, cfg fencepost.Config) *fencepost.Runtime {
	t.Helper()
	cfg.Guard, cfg.Learned = "off", new(admit.Model)
	for rows := 100; rows <= 4000; rows += 100 {
		cfg.Learned.Observe("sort", admit.ShapeOf("rows", rows), uint64(10*rows))
	}
	return e2e.Open(t, cfg)
}

func rows(n int) fencepost.JobOption { return fencepost.Shape("rows", n) }

func TestAJobIsReservedWhatItsLikeHaveNeeded(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{Budget: 1 << 20, Guard: "off"})
	for i := range 60 {
		n, options := 100+i*50, []fencepost.JobOption{rows(100 + i*50)}
		if i >= 10 { // before, it is measured only
			options = append(options, fencepost.Admit())
		}
		var account core.JobAccount
		e2e.Succeed(t, "a job", rt.Do(t.Context(), "sort", func(j *fencepost.Job) error {
			account = j.Account()
			if claimed := rt.Stats().Claimed; claimed != account.Reserved || (claimed > 0) != (i >= 10) {
				t.Errorf("job %d: %d bytes are claimed, %d are reserved", i, claimed, account.Reserved)
			}
			return needing(10 * n)(j)
		}, options...))
		needs := uint64(10 * n)
		if i > 20 && (account.Predicted != account.Reserved || account.Reserved < needs || account.Reserved > needs+needs/7) {
			t.Errorf("job %d needs %d bytes: %d were predicted, %d reserved", i, needs, account.Predicted, account.Reserved)
		}
	}
	nothingIsHeld(t, rt)
}

func TestAnAdmittedJobTakesWhatItNeedsBeyondFromTheBudget(t *testing.T) {
	rt := taught(t, fencepost.Config{Budget: 40_000})
	e2e.Succeed(t, "with room", rt.Do(t.Context(), "sort", needing(30_000), rows(1000), fencepost.Admit()))
	held := e2e.Allocate(t, rt, 20_000, core.DefaultStream, "index")
	err := rt.Do(t.Context(), "sort", needing(30_000), rows(1000), fencepost.Admit())
	if short, ok := errors.AsType[*core.OutOfBudgetError](err); !ok || short.Holders[0].Tag != "index" || !strings.Contains(err.Error(), `"sort" needs more than the`) {
		t.Errorf("without: %v", err)
	}
	e2e.Free(t, rt, held)
	if n := rt.Stats().Refusals; n != 1 {
		t.Errorf("%d refusals were counted, and one was told", n)
	}
	nothingIsHeld(t, rt)
}

func TestAJobThatNeverFitsIsToldSo(t *testing.T) {
	rt := taught(t, fencepost.Config{Budget: 20_000})
	err := rt.Do(t.Context(), "sort", nothing, rows(4000), fencepost.Admit())
	never, ok := errors.AsType[*admit.NeverFitsError](err)
	if !ok || !errors.Is(err, core.ErrOutOfBudget) || never.Limit != 20_000 || never.Needs <= 20_000 || rt.Stats().Refusals != 1 {
		t.Errorf("%v, %d refusals", err, rt.Stats().Refusals)
	}
	expect.Error(t, rt.Do(t.Context(), "sort", nothing, rows(1), fencepost.Shape("b", 1), fencepost.Shape("c", 1)), core.ErrInvalidRequest, "three numbers")
	nothingIsHeld(t, rt)
}

// What is there for long is in the way of the upper end of what a job needs, and not of the job.
func TestAJobAloneGetsWhatThereIs(t *testing.T) {
	rt := taught(t, fencepost.Config{Budget: 15_000})
	held := e2e.Allocate(t, rt, 5000, core.DefaultStream, "weights")
	e2e.Succeed(t, "the job", rt.Do(t.Context(), "sort", func(j *fencepost.Job) error {
		if a := j.Account(); a.Reserved != 10_000 || a.Predicted <= 10_000 {
			t.Errorf("reserved: %+v", a)
		}
		return needing(10_000)(j)
	}, rows(1000), fencepost.Admit()))
	more := e2e.Allocate(t, rt, 2000, core.DefaultStream, "weights")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	expect.Error(t, rt.Do(ctx, "sort", nothing, rows(1000), fencepost.Admit()), context.DeadlineExceeded, "with less than it needs at least")
	e2e.Free(t, rt, held, more)
	nothingIsHeld(t, rt)
}

// One that gives its reservation back goes on, and is in the way no more; if it is spent, nothing else says so.
func TestAReservationThatIsGivenBackLetsTheNextIn(t *testing.T) {
	rt := taught(t, fencepost.Config{Budget: 15_000})
	waits := make(chan error, 1)
	e2e.Succeed(t, "the holder", rt.Do(t.Context(), "holder", func(j *fencepost.Job) error {
		must.Do(t, needing(5000)(j))
		go func() { waits <- rt.Do(context.Background(), "sort", needing(10_000), rows(1000), fencepost.Admit()) }()
		for rt.Waiting() == 0 {
			time.Sleep(time.Millisecond)
		}
		must.Do(t, j.Settle())
		return <-waits
	}, fencepost.Reserve(5000, 0)))
	nothingIsHeld(t, rt)
}

// What a fork has freed is back when the device is done with it, and until then the rest of the budget will do.
func TestAnAdmittedJobDoesNotWaitForItsForksFrees(t *testing.T) {
	rt := taught(t, fencepost.Config{Budget: 40_000, Resource: fencepost.Async})
	e2e.Succeed(t, "the job", rt.Do(t.Context(), "sort", func(j *fencepost.Job) error {
		fork := must.Get(j.Fork())(t)
		release := e2e.Hold(t, rt, fork.Stream().Handle())
		defer release()
		freed := must.Get(fencepost.Alloc[byte](fork, 900))(t)
		must.Do(t, freed.Free(t.Context()))
		_, err := fencepost.Alloc[byte](j, 900)
		return err
	}, rows(100), fencepost.Admit()))
	nothingIsHeld(t, rt)
}

// The first waits for all that it may need while others hold a reservation, even one that is spent.
func TestAnAdmittedJobWaitsForOthersReservations(t *testing.T) {
	rt := taught(t, fencepost.Config{Budget: 15_000})
	inside, goOn, done := make(chan struct{}), make(chan struct{}), make(chan error, 2)
	go func() {
		done <- rt.Do(context.Background(), "holder", func(j *fencepost.Job) error {
			err := needing(5000)(j)
			close(inside)
			<-goOn
			return err
		}, fencepost.Reserve(5000, 0))
	}()
	<-inside
	ctx, cancel := context.WithCancel(context.Background())
	go func() { done <- rt.Do(ctx, "sort", nothing, rows(1000), fencepost.Admit()) }()
	for rt.Waiting() == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	expect.Error(t, <-done, context.Canceled, "one that gives up")
	go func() { done <- rt.Do(context.Background(), "sort", needing(10_000), rows(1000), fencepost.Admit()) }()
	for rt.Waiting() == 0 {
		time.Sleep(time.Millisecond)
	}
	close(goOn)
	must.Do(t, <-done, <-done)
	nothingIsHeld(t, rt)
}

func TestAJobGivesBackWhatItWillNotNeed(t *testing.T) {
	rt := taught(t, fencepost.Config{Budget: 40_000})
	var job *fencepost.Job
	e2e.Succeed(t, "the job", rt.Do(t.Context(), "sort", func(j *fencepost.Job) error {
		job = j
		err := needing(500)(j)
		must.Do(t, err, j.Settle(), j.Settle())
		if st := rt.Stats(); st.Claims != 0 || st.Charged > 1024 {
			t.Errorf("settled: %d claims, %d bytes charged", st.Claims, st.Charged)
		}
		return needing(20_000)(j)
	}, rows(1000), fencepost.Admit()))
	if a := job.Account(); a.Reserved < 10_000 || a.Requested != 20_500 {
		t.Errorf("the account: %+v", a)
	}
	expect.Error(t, job.Settle(), core.ErrStreamMisuse, "after its end")
	var none *fencepost.Job
	expect.Error(t, none.Settle(), core.ErrInvalidRequest, "of nil")
	nothingIsHeld(t, rt)
}

// The first jobs of a kind have an eighth of the limit as a guess, or what one of them has shown to
// need; others run beside them.
func TestTheFirstJobsOfAKindHaveAShareOfTheLimit(t *testing.T) {
	const limit = 80_000
	rt := taught(t, fencepost.Config{Budget: limit})
	reserved := func(name string, want uint64, use int, beside func() error, options ...fencepost.JobOption) error {
		return rt.Do(t.Context(), name, func(j *fencepost.Job) error {
			if a := j.Account(); want > 0 && a.Reserved != want {
				t.Errorf("%s is reserved %d bytes, not %d", name, a.Reserved, want)
			}
			return errors.Join(needing(use)(j), beside())
		}, append(options, fencepost.Admit())...)
	}
	none := func() error { return nil }
	e2e.Succeed(t, "all", reserved("first", limit/8, 1000, func() error {
		return errors.Join(reserved("sort", 0, 1000, none, rows(100)), reserved("second", limit/8, 1000, none),
			reserved("first", limit/8, 20_000, func() error { return reserved("first", 20_000, 100, none) }))
	}))
	e2e.Succeed(t, "one that has been learned", rt.Do(t.Context(), "first", func(j *fencepost.Job) error {
		if a := j.Account(); a.Reserved < 20_000 {
			t.Errorf("afterwards %d bytes are reserved", a.Reserved)
		}
		return needing(1000)(j)
	}, fencepost.Admit()))
	nothingIsHeld(t, rt)
}

// Jobs of many unknown kinds do not wait for each other. Six eighths of the limit are reserved, and
// a quarter is kept for the one of them that needs more.
func TestAColdStartIsNotSerial(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{Budget: 80_000, Guard: "off", Streams: 16})
	var inside atomic.Int32
	six := make(chan struct{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			e2e.Succeed(t, "a job", rt.Do(ctx, fmt.Sprint("kind ", i%4), func(j *fencepost.Job) error {
				if inside.Add(1) == 6 {
					if n := rt.Learning(); n < 6 {
						t.Errorf("%d jobs are being learned", n)
					}
					close(six)
				}
				select {
				case <-six:
				case <-ctx.Done():
				}
				return needing(1000)(j)
			}, fencepost.Admit()))
		})
	}
	all.Wait()
	if n := rt.Learning(); n != 0 {
		t.Errorf("%d jobs are being learned at the end", n)
	}
	nothingIsHeld(t, rt)
}

// Where no job holds a reservation that could come back, a guess is what there is.
func TestAGuessIsNoMoreThanThereIs(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{Budget: 80_000, Guard: "off"})
	held := []core.Block{e2e.Allocate(t, rt, 79_000, core.DefaultStream, "weights")}
	for _, left := range []int{80_000 - int(held[0].Bytes), 0} {
		err := rt.Do(t.Context(), "cold", func(j *fencepost.Job) error {
			if a := j.Account(); a.Reserved != uint64(left) {
				t.Errorf("%d bytes are reserved of %d", a.Reserved, left)
			}
			_, err := fencepost.Alloc[byte](j, 2000)
			return err
		}, fencepost.Admit())
		expect.Error(t, err, core.ErrOutOfBudget, "one that needs more")
		if left > 0 {
			held = append(held, e2e.Allocate(t, rt, uint64(left), core.DefaultStream, "weights"))
		}
	}
	e2e.Free(t, rt, held[1])
	e2e.Succeed(t, "one that holds what is left", rt.Do(t.Context(), "holder", func(j *fencepost.Job) error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		err := rt.Do(ctx, "cold", nothing, fencepost.Admit())
		if expect.Error(t, err, context.DeadlineExceeded, "one that waits for its guess"); !strings.Contains(err.Error(),
			"being learned") {
			t.Error(err)
		}
		return nil
	}, fencepost.Reserve(80_000-held[0].Bytes, 0)))
	e2e.Free(t, rt, held[0])
	nothingIsHeld(t, rt)
}

func TestAReservationIsTheGuessUntilSomethingIsKnown(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{Budget: 40_000, Guard: "off"})
	for want := range []int{0, 1} {
		e2e.Succeed(t, "the job", rt.Do(t.Context(), "sort", func(j *fencepost.Job) error {
			if got := j.Account().Reserved; (got == 12_345) != (want == 0) {
				t.Errorf("run %d: %d bytes are reserved", want, got)
			}
			return needing(5000)(j)
		}, fencepost.Reserve(12_345, 0), fencepost.Admit()))
	}
	nothingIsHeld(t, rt)
}

// A job that was broken off teaches only what it needed beyond what was known.
func TestAJobThatWasBrokenOffIsNoLesson(t *testing.T) {
	rt := taught(t, fencepost.Config{Budget: 1 << 20})
	failing := func(bytes int) func(*fencepost.Job) error {
		return func(j *fencepost.Job) error {
			must.Do(t, needing(bytes)(j))
			return errors.New("broken off")
		}
	}
	predicted := func(name string) (bytes uint64) {
		_ = rt.Do(t.Context(), name, func(j *fencepost.Job) error {
			bytes = j.Account().Reserved
			return errors.New("a look")
		}, rows(1000), fencepost.Admit())
		return bytes
	}
	before := predicted("sort")
	for range 30 {
		_ = rt.Do(t.Context(), "sort", failing(10), rows(1000), fencepost.Admit())
		_ = rt.Do(t.Context(), "unknown", failing(10), rows(1000), fencepost.Admit())
	}
	if after := predicted("sort"); after != before || predicted("unknown") != 1<<20/8 {
		t.Errorf("after broken jobs %d bytes are reserved, before %d; of an unknown one %d", after, before, predicted("unknown"))
	}
	for range 30 {
		_ = rt.Do(t.Context(), "sort", failing(20_000), rows(1000), fencepost.Admit())
	}
	if after := predicted("sort"); after < 20_000 {
		t.Errorf("after 30 that needed 20000 bytes %d are reserved", after)
	}
	nothingIsHeld(t, rt)
}

func TestWhatJobsNeedIsKeptInAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "learned")
	reserved := func(cfg fencepost.Config) (bytes uint64) {
		cfg.Budget, cfg.Guard = 1<<20, "off"
		rt := must.Get(fencepost.Open(t.Context(), cfg))(t)
		for range 30 {
			e2e.Succeed(t, "a job", rt.Do(t.Context(), "sort", func(j *fencepost.Job) error {
				if bytes == 0 {
					bytes = j.Account().Reserved + 1
				}
				return needing(5000)(j)
			}, fencepost.Admit()))
		}
		_, err := rt.Close(t.Context())
		e2e.Succeed(t, "closing", err)
		return bytes - 1
	}
	cfg := fencepost.Config{Device: fencepost.Sim, LearnedFile: file}
	const guess = 1 << 20 / 8
	if got := reserved(cfg); got != guess {
		t.Errorf("the first job ever is reserved %d bytes", got)
	}
	t.Setenv("FENCEPOST_LEARNED", file)
	if got := reserved(fencepost.Config{Device: fencepost.Sim}); got < 5000 || got == guess {
		t.Errorf("after a restart %d bytes are reserved", got)
	}
	whole := must.Get(os.ReadFile(file))(t)
	for what, damaged := range map[string]string{
		"another body":      "fencepost-admit 1 00000000\ndamaged",
		"nothing":           "",
		"zeros":             string(make([]byte, len(whole))),
		"a zero first":      "\x00" + string(whole[1:]),
		"another letter":    "g" + string(whole[1:]),
		"a blank line":      "\n" + string(whole),
		"a byte order mark": "\xef\xbb\xbf" + string(whole),
	} {
		logger, text := e2e.LogOf()
		cfg.Findings.Logger = logger
		must.Do(t, os.WriteFile(file, []byte(damaged), 0o600))
		if got := reserved(cfg); got != guess || !strings.Contains(text.String(), "learned anew") {
			t.Errorf("of a file with %s %d bytes are reserved; it says %q", what, got, text)
		}
		if got := reserved(cfg); got < 5000 || got == guess {
			t.Errorf("after a file with %s %d bytes are reserved", what, got)
		}
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if exec.CommandContext(t.Context(), "mkfifo", pipe).Run() != nil {
		pipe = os.DevNull
	}
	for _, path := range []string{t.TempDir(), os.DevNull, pipe} {
		t.Setenv("FENCEPOST_LEARNED", path)
		done := make(chan error, 1)
		go func() { done <- e2e.ErrorOf(fencepost.Open(t.Context(), fencepost.Config{Device: fencepost.Sim})) }()
		select {
		case err := <-done:
			expect.Error(t, err, core.ErrInvalidRequest, path)
		case <-time.After(20 * time.Second):
			t.Fatalf("Open waits for %s", path)
		}
	}
}

// Whatever is wrong with the path of a file of learned peaks, Open says it; a folder that is
// missing is made. So Close can write what was learned.
func TestAFileOfLearnedPeaksIsWrittenOrRefusedByOpen(t *testing.T) {
	folder := t.TempDir()
	plain := filepath.Join(folder, "plain")
	must.Do(t, os.WriteFile(plain, []byte("not ours"), 0o600))
	for path, opens := range map[string]bool{
		filepath.Join(folder, "new"):           true,
		filepath.Join(folder, "a", "b", "new"): true,
		filepath.Join(plain, "below a file"):   false,
		plain:                                  false,
		folder:                                 false,
		os.DevNull:                             false,
		"/proc/no such folder/learned":         false,
		filepath.Join(folder, strings.Repeat("n", 300)): false,
		"a zero\x00byte": false,
	} {
		for _, learned := range []*admit.Model{nil, new(admit.Model)} {
			rt, err := fencepost.Open(t.Context(), fencepost.Config{Device: fencepost.Sim, LearnedFile: path, Learned: learned})
			if !opens {
				var bad *core.InvalidRequestError
				if !errors.As(err, &bad) || bad.Field != "LearnedFile" {
					t.Errorf("%.60q: Open says %v", path, err)
				}
				if err == nil {
					_, _ = rt.Close(t.Context())
				}
				continue
			}
			e2e.Succeed(t, "opening", err)
			e2e.Succeed(t, "a job", rt.Do(t.Context(), "sort", needing(5000), fencepost.Admit()))
			e2e.Succeed(t, "closing", e2e.ErrorOf(rt.Close(t.Context())))
			if m := must.Get(admit.Load(path))(t); m.Predict("sort", admit.Shape{}).Runs == 0 {
				t.Errorf("%q has nothing of the job", path)
			}
		}
	}
	if entries := must.Get(os.ReadDir(folder))(t); len(entries) != 3 {
		t.Errorf("Open leaves files behind: %v", entries)
	}
}

// A job that needs no memory is learned as any other: it runs beside others.
func TestAJobThatNeedsNothingIsLearned(t *testing.T) {
	rt := taught(t, fencepost.Config{Budget: 40_000})
	for range 20 {
		e2e.Succeed(t, "the job", rt.Do(t.Context(), "lookup", nothing, fencepost.Admit()))
	}
	e2e.Succeed(t, "one of them", rt.Do(t.Context(), "lookup", func(j *fencepost.Job) error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		return errors.Join(rt.Do(ctx, "lookup", nothing, fencepost.Admit()),
			rt.Do(ctx, "sort", needing(1000), rows(100), fencepost.Admit()))
	}, fencepost.Admit()))
	nothingIsHeld(t, rt)
}

// Runtimes with one file learn together, whatever its path is called, and none writes over what
// another knows. A model of the program's own is added to the file too.
func TestRuntimesWithOneFileLearnTogether(t *testing.T) {
	folder := t.TempDir()
	t.Chdir(folder)
	other := t.TempDir()
	link, dir := filepath.Join(other, "link"), filepath.Join(other, "dir")
	must.Do(t, os.Symlink(filepath.Join(folder, "learned"), link), os.Symlink(folder, dir))
	var all []*fencepost.Runtime
	for _, cfg := range []fencepost.Config{{LearnedFile: "learned"}, {LearnedFile: filepath.Join(folder, "learned")},
		{LearnedFile: "./learned", Learned: new(admit.Model)}, {LearnedFile: link}, {LearnedFile: filepath.Join(dir, "learned")}} {
		cfg.Device, cfg.Budget, cfg.Guard = fencepost.Sim, 1<<20, "off"
		all = append(all, must.Get(fencepost.Open(t.Context(), cfg))(t))
	}
	for i, rt := range all {
		e2e.Succeed(t, "a job", rt.Do(t.Context(), fmt.Sprint("job", i), needing(5000), fencepost.Admit()))
	}
	for _, i := range []int{1, 3, 4} {
		e2e.Succeed(t, "what another has learned", all[i].Do(t.Context(), "job0", func(j *fencepost.Job) error {
			if a := j.Account(); a.Reserved < 5000 || a.Reserved == 1<<20/8 {
				t.Errorf("runtime %d reserves %d bytes", i, a.Reserved)
			}
			return needing(5000)(j)
		}, fencepost.Admit()))
	}
	for _, rt := range all {
		e2e.Succeed(t, "closing", e2e.ErrorOf(rt.Close(t.Context())))
	}
	m := must.Get(admit.Load("learned"))(t)
	for i, want := range []int{4, 1, 1, 1, 1} {
		if p := m.Predict(fmt.Sprint("job", i), admit.Shape{}); p.Runs != want {
			t.Errorf("of job%d %d runs are in the file, not %d", i, p.Runs, want)
		}
	}
	if info := must.Get(os.Lstat(link))(t); info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link has become %v", info.Mode())
	}
}

// TestAdmissionHammer runs jobs of all kinds side by side, of which some are cancelled, panic, fork, settle or need too
// much: all end, none holds anything, and an account says what its job needed.
func TestAdmissionHammer(t *testing.T) {
	rt := taught(t, fencepost.Config{Budget: 60_000, ReservePasses: 3})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var workers sync.WaitGroup
	for g := range 8 {
		workers.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(g)))
			for range 60 {
				n := 100 + rng.IntN(3000)
				ctx, cancel := context.WithCancel(context.Background())
				if rng.IntN(4) == 0 {
					time.AfterFunc(time.Duration(rng.IntN(2000))*time.Microsecond, cancel)
				}
				needs, kind := 10*n, rng.IntN(8)
				if kind == 0 {
					needs *= 2
				}
				options := []fencepost.JobOption{rows(n), fencepost.Admit()}
				if kind == 1 {
					options = []fencepost.JobOption{fencepost.Reserve(uint64(needs), time.Second)}
				}
				err := admittedLife(ctx, rt, kind, needs, options)
				for _, expected := range []error{core.ErrOutOfBudget, context.Canceled} {
					if errors.Is(err, expected) {
						err = nil
					}
				}
				expect.Success(t, err)
				cancel()
			}
		})
	}
	workers.Wait()
	nothingIsHeld(t, rt)
}

func admittedLife(ctx context.Context, rt *fencepost.Runtime, kind, needs int, options []fencepost.JobOption) (err error) {
	defer func() {
		if recover() != nil && kind != 2 {
			err = errors.New("a job panicked")
		}
	}()
	return rt.Do(ctx, "sort", func(j *fencepost.Job) error {
		if kind == 3 {
			fork, err := j.Fork()
			if err != nil {
				return err
			}
			j = fork
		}
		if err := needing(needs)(j); err != nil {
			return err
		}
		if a := j.Account(); a.Requested != uint64(needs) {
			return fmt.Errorf("the account has %d bytes of %d", a.Requested, needs)
		}
		switch kind {
		case 2:
			panic("a job")
		case 4:
			return j.Settle()
		}
		return nil
	}, options...)
}

// life is what a job allocates and frees: sizes of blocks, and -1 for the end of the first one, -2 of the second.
type life []int

// peak is the most that is live at once.
func (l life) peak() (most int) {
	var blocks []int
	now := 0
	for _, n := range l {
		if n < 0 {
			now -= blocks[-n-1]
			continue
		}
		blocks = append(blocks, n)
		now += n
		most = max(most, now)
	}
	return most
}

// kinds are jobs of a service: their names, and what they do by rows and columns, which is up to noise times as much.
type kinds map[string]func(rows, columns int, noise float64) life

func inTwo(n int, noise float64) life {
	n = int(float64(n) * noise)
	return life{n / 3, n - n/3}
}

var programs = kinds{
	"sort": func(rows, _ int, noise float64) life { return inTwo(16*rows, noise) },
	"join": func(rows, columns int, noise float64) life { return inTwo(4096+8*rows+rows*columns/16, noise) },
	"steps": func(rows, columns int, noise float64) life {
		n := 1 << 12
		for n < 8*rows+4*columns {
			n *= 2
		}
		return inTwo(n, noise)
	},
}

// recordedKinds are jobs each of which does what 24 calls of a recorded program did, with blocks as much larger as it has rows.
func recordedKinds(t *testing.T) kinds {
	t.Helper()
	all := kinds{}
	for _, name := range traces.Names() {
		trace := must.Get(alloctrace.Read(name, must.Get(traces.Open(name))(t)))(t)
		var l life
		at, most := map[alloctrace.Key]int{}, 0
		for _, row := range trace.Rows[len(trace.Rows)/3:] {
			if block, ok := at[row.Key()]; ok && row.Action == alloctrace.Free {
				l = append(l, -block-1)
				delete(at, row.Key())
			} else if row.Action == alloctrace.Allocate && row.Bytes > 0 {
				at[row.Key()] = most
				most++
				l = append(l, int(row.Bytes))
			}
			if len(l) == 24 {
				break
			}
		}
		unit := float64(l.peak()) / 16 // bytes a row
		all[name] = func(rows, _ int, noise float64) life {
			scaled := slices.Clone(l)
			for i, n := range l {
				if n > 0 {
					scaled[i] = max(1, int(float64(n)*noise*float64(rows)/unit))
				}
			}
			return scaled
		}
	}
	return all
}

// service is what came of its jobs, in simulated time.
type service struct {
	peak   uint64
	failed int // of those after the first 20 of a kind, or of all if they were known
	cold   int // of the first 20 of each kind, if they were not
	under  int // that needed more than was predicted, of those that were known
	known  int
	over   float64 // bytes reserved beyond what was needed, as a part of that
	took   time.Duration
	waits  []time.Duration
}

// serve runs the jobs of 16 workers on a simulated device with so many bytes of budget, at most so many at once, in one of many
// orders. With a model, which may know them from before, they are admitted.
func serve(t *testing.T, of kinds, order, budget uint64, most int, model *admit.Model) (s service) {
	names := slices.Sorted(maps.Keys(of))
	allowed := 20
	var options []fencepost.JobOption
	if model != nil {
		options = append(options, fencepost.Admit())
		if model.Predict(names[0], admit.ShapeOf("rows", 1).And("columns", 1)).Runs > 0 {
			allowed = 0
		}
	}
	synctest.Test(t, func(t *testing.T) {
		cfg := fencepost.Config{Budget: budget, Guard: "off", Learned: model, ReservePasses: 8, TimeOneIn: -1, Streams: 32}
		cfg.Pool.ReapInterval, cfg.Async.ReapInterval = -1, -1
		rt := e2e.Open(t, cfg)
		slots := make(chan struct{}, most)
		var mu sync.Mutex
		var workers sync.WaitGroup
		ended := map[string]int{}
		var reserved, needed float64
		begin := time.Now()
		for worker := range 16 {
			workers.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(worker), order))
				for range 60 {
					name := names[rng.IntN(len(names))]
					rows, columns := 1000+rng.IntN(9000), rng.IntN(2000)
					does := of[name](rows, columns, 1+rng.Float64()/50)
					needs := does.peak()
					took := 2*time.Millisecond + time.Duration(needs/10)*time.Nanosecond*1000
					slots <- struct{}{}
					asked := time.Now()
					var job *fencepost.Job
					var waited time.Duration
					err := rt.Do(t.Context(), name, func(j *fencepost.Job) error {
						job, waited = j, time.Since(asked)
						var blocks []*cuda.Slice[byte]
						for _, n := range does {
							if n < 0 {
								must.Do(t, blocks[-n-1].Free(t.Context()))
							} else if block, err := fencepost.Alloc[byte](j, n); err != nil {
								return err
							} else {
								blocks = append(blocks, block)
							}
							time.Sleep(took / time.Duration(len(does)))
						}
						return nil
					}, append(options, fencepost.Shape("rows", rows), fencepost.Shape("columns", columns))...)
					<-slots
					mu.Lock()
					if a := job.Account(); a.Predicted > 0 && len(options) > 0 {
						s.known++
						reserved, needed = reserved+float64(a.Reserved), needed+float64(needs)
						if a.Predicted < uint64(needs) {
							s.under++
						}
					}
					if ended[name]++; err != nil && ended[name] > allowed {
						s.failed++
					} else if err != nil {
						s.cold++
					}
					s.waits = append(s.waits, waited)
					mu.Unlock()
				}
			})
		}
		workers.Wait()
		s.took, s.peak, s.over = time.Since(begin), rt.Stats().PeakRequested, reserved/max(1, needed)-1
		slices.Sort(s.waits)
	})
	return s
}

// serveAll is serve in each of the orders, one after the other, until a job fails.
func serveAll(t *testing.T, of kinds, orders, budget uint64, most int, model *admit.Model) (all service) {
	for order := uint64(0); order < orders && all.failed == 0; order++ {
		s := serve(t, of, order, budget, most, model)
		all.failed, all.under, all.known = all.failed+s.failed, all.under+s.under, all.known+s.known
		all.took, all.over, all.peak = all.took+s.took, all.over+s.over/float64(orders), max(all.peak, s.peak)
		all.waits = append(all.waits, s.waits...)
	}
	slices.Sort(all.waits)
	return all
}

// TestAServiceWithAdmissionRunsAsFastAsWithTheBestSemaphore has a quarter, a half and three quarters of the memory that all
// jobs at once take. The best semaphore is found by trying them, and knows the jobs; Admit has learned them from one run of the service.
// Neither may fail a job, in any of the orders.
func TestAServiceWithAdmissionRunsAsFastAsWithTheBestSemaphore(t *testing.T) {
	if testing.Short() {
		runServices(t, programs, 1, 1)
		return
	}
	t.Run("programs", func(t *testing.T) { runServices(t, programs, 4, 3) })
	t.Run("traces", func(t *testing.T) { runServices(t, recordedKinds(t), 4, 3) })
}

func runServices(t *testing.T, of kinds, orders uint64, shares int) {
	all := serveAll(t, of, orders, 1<<32, 16, nil)
	for _, share := range []uint64{25, 50, 75}[:shares] {
		budget := all.peak * share / 100
		best, slots := service{took: 1 << 62}, 0
		for most := 1; most <= 16; most++ {
			if s := serveAll(t, of, orders, budget, most, nil); s.failed == 0 && s.took < best.took {
				best, slots = s, most
			}
		}
		model := new(admit.Model)
		first := serve(t, of, orders, budget, 16, model)
		s := serveAll(t, of, orders, budget, 16, model)
		t.Logf("%d %% of %d KiB: %v with admission, %v more to learn with %d that fail, %d fail, %d of %d under, %.3f over, 99 %% wait less than %v; %v with the best semaphore, of %d; without either %d fail",
			share, all.peak>>10, s.took, first.took-s.took/time.Duration(orders), first.cold, s.failed+first.failed, s.under,
			s.known, s.over, s.waits[len(s.waits)*99/100], best.took, slots, serve(t, of, 0, budget, 16, nil).failed)
		if s.failed+first.failed > 0 || s.took*9 > best.took*10 || s.under*100 > s.known || s.over > .15 {
			t.Errorf("with %d %%: %d failed, %d of %d were under-reserved, %.3f over-reserved, and it took %v where the best semaphore takes %v", share, s.failed+first.failed, s.under, s.known, s.over, s.took, best.took)
		}
	}
}
