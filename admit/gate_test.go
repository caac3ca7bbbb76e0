package admit_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/admit"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/internal/testkit/niltest"
)

// taught has seen jobs "a", "b" and so on so often that it knows their peaks, which are 1000 bytes,
// 2000 and so on, within two per cent.
func taught(t *testing.T, cfg admit.Config) *admit.Gate {
	cfg.Model = new(admit.Model)
	for i, job := range []string{"a", "b", "c", "d"} {
		for range 300 {
			cfg.Model.Observe(job, admit.Shape{}, 1000*uint64(i+1))
		}
	}
	return must.Get(admit.New(cfg))(t)
}

// arrival is a call of Enter under way.
type arrival struct {
	in  chan *admit.Admission
	err chan error
}

// enter begins to enter, and returns when the gate has the job, in or waiting.
func enter(ctx context.Context, t *testing.T, g *admit.Gate, job string) arrival {
	t.Helper()
	w := arrival{make(chan *admit.Admission, 1), make(chan error, 1)}
	before := g.Stats()
	go func() {
		if a, err := g.Enter(ctx, job, admit.Shape{}); err == nil {
			w.in <- a
		} else {
			w.err <- err
		}
	}()
	eventually(t, "it is not there", func() bool {
		s := g.Stats()
		return s.Entered+s.Refused+s.GaveUp+uint64(s.Waiting) > before.Entered+before.Refused+before.GaveUp+uint64(before.Waiting)
	})
	return w
}

func (w arrival) get(t *testing.T) *admit.Admission {
	t.Helper()
	select {
	case a := <-w.in:
		return a
	case err := <-w.err:
		t.Fatal(err)
	case <-time.After(20 * time.Second):
		t.Fatal("it is not let in")
	}
	return nil
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(50 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

func waiting(t *testing.T, g *admit.Gate, n int) {
	t.Helper()
	if s := g.Stats(); s.Waiting != n {
		t.Fatalf("%d wait, not %d: %+v", s.Waiting, n, s)
	}
}

func TestAJobIsLetInForWhatItWillNeed(t *testing.T) {
	g := taught(t, admit.Config{Limit: 10_000})
	a := must.Get(g.Enter(t.Context(), "d", admit.Shape{}))(t)
	if r := a.Reserved(); r < 4000 || r > 4100 || g.Stats().Charged != r {
		t.Errorf("%d bytes are reserved for 4000: %+v", r, g.Stats())
	}
	must.Do(t, a.Observe(3990))
	must.Do(t, a.Observe(10))
	a.Leave()
	a.Abort()
	if s := g.Stats(); s.Charged != 0 || s.Inside != 0 || s.Entered != 1 || s.Errors.Runs != 1 || s.Errors.PeakBytes != 3990 ||
		s.Errors.OverBytes == 0 || s.Errors.OverBytes > 110 || s.Jobs["d"] != s.Errors {
		t.Errorf("it is not gone: %+v", s)
	}
	if err := a.Observe(1); !errors.Is(err, core.ErrInvalidRequest) || g.Stats().Charged != 0 {
		t.Error("it uses memory after it has left:", err)
	}
}

func TestJobsThatDoNotFitWaitInOrder(t *testing.T) {
	g := taught(t, admit.Config{Limit: 4100})
	first := enter(t.Context(), t, g, "d").get(t)
	c, a, b := enter(t.Context(), t, g, "c"), enter(t.Context(), t, g, "a"), enter(t.Context(), t, g, "b")
	waiting(t, g, 3)
	first.Leave()
	inC, inA := c.get(t), a.get(t)
	waiting(t, g, 1)
	inA.Leave()
	waiting(t, g, 1)
	inC.Leave()
	b.get(t).Leave()
}

func TestSoManyPassTheFirst(t *testing.T) {
	g := taught(t, admit.Config{Limit: 4100, Passes: 2})
	held := enter(t.Context(), t, g, "b").get(t)
	large := enter(t.Context(), t, g, "d")
	for range 2 {
		enter(t.Context(), t, g, "a").get(t).Leave()
	}
	third := enter(t.Context(), t, g, "a")
	waiting(t, g, 2)
	held.Leave()
	large.get(t).Leave()
	third.get(t).Leave()
}

func TestWhatNeverFitsIsRefusedAndTold(t *testing.T) {
	g := taught(t, admit.Config{Limit: 3500})
	_, err := g.Enter(t.Context(), "d", admit.Shape{})
	if e, ok := errors.AsType[*admit.NeverFitsError](err); !ok || e.Limit != 3500 || e.Needs < 3900 || e.Needs > 4000 || e.Runs != 256 || !strings.Contains(err.Error(), "raise the limit") {
		t.Fatal(err)
	}
	held := enter(t.Context(), t, g, "a").get(t)
	c, b := enter(t.Context(), t, g, "c"), enter(t.Context(), t, g, "b")
	g.SetLimit(2500) // too little for c, which waits
	err = <-c.err
	if e, ok := errors.AsType[*admit.NeverFitsError](err); !ok || e.Limit != 2500 || e.Job != "c" {
		t.Error(err)
	}
	waiting(t, g, 1)
	g.SetLimit(3500)
	b.get(t).Leave()
	held.Leave()
	if s := g.Stats(); s.Refused != 2 || s.Charged != 0 {
		t.Errorf("%+v", s)
	}
}

func TestAJobThatIsForgottenMayTryAgain(t *testing.T) {
	model := new(admit.Model)
	model.Forget("job") // of nothing
	g := must.Get(admit.New(admit.Config{Limit: 1000, Model: model}))(t)
	for n := range 100 {
		model.Observe("job", admit.Shape{}, 5000)
		model.Observe("job", admit.ShapeOf("rows", n), 5000)
		model.Observe("other", admit.Shape{}, 500)
	}
	for _, shape := range []admit.Shape{{}, admit.ShapeOf("rows", 5)} {
		if _, err := g.Enter(t.Context(), "job", shape); err == nil || !strings.Contains(err.Error(), "forget the job") {
			t.Error(err)
		}
	}
	model.Forget("job")
	must.Get(g.Enter(t.Context(), "job", admit.ShapeOf("rows", 5)))(t).Leave()
	must.Get(g.Enter(t.Context(), "job", admit.Shape{}))(t).Leave()
	if !model.Predict("other", admit.Shape{}).Known {
		t.Error("another job was forgotten")
	}
}

func TestAnUnknownJobHasAShareOrWhatIsConfigured(t *testing.T) {
	for unknown, want := range map[uint64]uint64{0: 1000, 1234: 1234, math.MaxUint64: 8000} {
		g := taught(t, admit.Config{Limit: 8000, Unknown: unknown})
		in := enter(t.Context(), t, g, "stranger").get(t)
		if in.Reserved() != want || !in.Learning() || g.Stats().Learning != 1 {
			t.Errorf("an unknown job gets %d bytes, not %d: %+v", in.Reserved(), want, g.Stats())
		}
		must.Do(t, in.Observe(700))
		in.Leave()
		in = enter(t.Context(), t, g, "stranger").get(t)
		if r := in.Reserved(); r < 700 || r > 1400 || in.Learning() || g.Stats().Learning != 0 {
			t.Errorf("what it needed was not learned: %d, %+v", r, g.Stats())
		}
		in.Leave()
	}
}

// Jobs of which nothing is known do not wait for each other, nor others for them. What one of them
// uses beyond its guess is what the next of its name asks for, also if it waits already.
func TestAGuessGrowsWithWhatIsUsed(t *testing.T) {
	g := taught(t, admit.Config{Limit: 8000})
	first := enter(t.Context(), t, g, "cold").get(t)
	other, known := enter(t.Context(), t, g, "other").get(t), enter(t.Context(), t, g, "b").get(t)
	must.Do(t, first.Observe(2000))
	second := enter(t.Context(), t, g, "cold").get(t)
	if second.Reserved() != 2000 {
		t.Errorf("the next gets %d bytes", second.Reserved())
	}
	stranger := enter(t.Context(), t, g, "stranger") // there are less than a thousand left
	next := enter(t.Context(), t, g, "cold")
	waiting(t, g, 2)
	if err := first.Observe(4500); err == nil {
		t.Error("there is not so much")
	}
	known.Leave()
	waiting(t, g, 2)
	other.Leave()
	stranger.get(t).Leave()
	second.Leave()
	waiting(t, g, 1) // for 4500
	ctx, cancel := context.WithCancel(t.Context())
	impatient := enter(ctx, t, g, "another")
	cancel()
	if err := <-impatient.err; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "being learned") {
		t.Error(err)
	}
	first.Leave()
	if in := next.get(t); in.Reserved() < 4500 || in.Learning() {
		t.Errorf("it gets %d bytes", in.Reserved())
	}
}

// A job that uses nothing is known to need nothing; one that has not been observed teaches nothing.
func TestAGateLearnsNothing(t *testing.T) {
	model := new(admit.Model)
	g := must.Get(admit.New(admit.Config{Limit: 8000, Model: model}))(t)
	for range 20 {
		enter(t.Context(), t, g, "unobserved").get(t).Leave()
		in := enter(t.Context(), t, g, "lookup").get(t)
		must.Do(t, in.Observe(0))
		in.Leave()
	}
	if p, none := model.Predict("lookup", admit.Shape{}), model.Predict("unobserved", admit.Shape{}); !p.Known ||
		p.Bytes != 0 || none.Runs != 0 {
		t.Errorf("%+v, and of one that was not observed %+v", p, none)
	}
	for range 100 { // all at once
		enter(t.Context(), t, g, "lookup").get(t)
	}
}

// Of many that come before anything is known one runs alone, and the others with what it has shown.
func TestWhoWaitsProfitsFromWhatIsLearnedMeanwhile(t *testing.T) {
	g := must.Get(admit.New(admit.Config{Limit: 10_000, Unknown: math.MaxUint64}))(t)
	first := enter(t.Context(), t, g, "job").get(t)
	var others []arrival
	for range 5 {
		others = append(others, enter(t.Context(), t, g, "job"))
	}
	waiting(t, g, 5)
	must.Do(t, first.Observe(1000))
	first.Leave()
	for _, w := range others {
		if r := w.get(t).Reserved(); r < 1000 || r > 2000 {
			t.Error("it reserves", r)
		}
	}
}

func TestAJobGivesBackAndTakesMoreAsItGoes(t *testing.T) {
	g := taught(t, admit.Config{Limit: 4100})
	d := enter(t.Context(), t, g, "d").get(t)
	b := enter(t.Context(), t, g, "b")
	must.Do(t, d.Observe(2500))
	d.Settle(1500) // it uses more still
	waiting(t, g, 1)
	must.Do(t, d.Observe(1500))
	inB := b.get(t)
	must.Do(t, d.Observe(1600)) // there are some left
	err := d.Observe(3000)
	if e, ok := errors.AsType[*admit.ShortError](err); !ok || e.Short != 3000+inB.Reserved()-4100 || e.Used != 3000 || e.Reserved != 1500 || !strings.Contains(err.Error(), fmt.Sprint(e.Short)) {
		t.Fatal(err)
	}
	a := enter(t.Context(), t, g, "a")
	must.Do(t, d.Observe(500))
	waiting(t, g, 1) // d has 1500 reserved
	d.Settle(1000)
	a.get(t).Leave()
	inB.Leave()
	d.Leave()
	if s := g.Stats(); s.Charged != 0 || s.Errors.Runs != 1 {
		t.Errorf("%+v", s)
	}
}

func TestAnAbortedJobTeachesOnlyThatMoreIsNeeded(t *testing.T) {
	model := new(admit.Model)
	g := must.Get(admit.New(admit.Config{Limit: 100_000, Model: model}))(t)
	for range 300 {
		model.Observe("job", admit.Shape{}, 1000)
	}
	for range 300 {
		a := enter(t.Context(), t, g, "job").get(t)
		must.Do(t, a.Observe(10))
		a.Abort()
	}
	if p := model.Predict("job", admit.Shape{}); p.Bytes < 1000 || p.Low < 900 {
		t.Errorf("broken off jobs were learned: %+v", p)
	}
	a := enter(t.Context(), t, g, "job").get(t)
	must.Do(t, a.Observe(2000))
	a.Abort()
	if p := model.Predict("job", admit.Shape{}); p.Bytes < 2000 {
		t.Errorf("a job that needed more and was broken off was not learned: %+v", p)
	}
}

func TestAContextThatEndsLeavesNothing(t *testing.T) {
	g := taught(t, admit.Config{Limit: 4100})
	held := enter(t.Context(), t, g, "c").get(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	d, a := enter(ctx, t, g, "d"), enter(t.Context(), t, g, "a")
	waiting(t, g, 2)
	why := errors.New("why")
	cancel(why)
	if err := <-d.err; !errors.Is(err, why) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	a.get(t).Leave() // it stood behind d alone
	held.Leave()
	if _, err := g.Enter(ctx, "a", admit.Shape{}); !errors.Is(err, why) {
		t.Error("it is let in when its context has ended:", err)
	}
	if s := g.Stats(); s.Charged != 0 || s.Waiting != 0 || s.Inside != 0 || s.GaveUp != 1 {
		t.Errorf("%+v", s)
	}
}

// late is a context that has ended when it is asked a second time.
type late struct {
	context.Context
	asked bool
}

func (l *late) Err() error {
	if l.asked {
		return context.Canceled
	}
	l.asked = true
	return nil
}

func (*late) Done() <-chan struct{} {
	ended := make(chan struct{})
	close(ended)
	return ended
}

// A context ends as the gate decides: either comes first for the job, and both leave the gate as it was.
func TestAContextThatEndsWithTheDecisionLeavesNothing(t *testing.T) {
	g := taught(t, admit.Config{Limit: 3500})
	in, refused, gaveUp := 0, 0, 0
	for range 200 {
		for _, job := range []string{"a", "d"} {
			a, err := g.Enter(&late{Context: t.Context()}, job, admit.Shape{})
			switch _, never := errors.AsType[*admit.NeverFitsError](err); {
			case err == nil:
				in++
				a.Leave()
			case never:
				refused++
			case errors.Is(err, context.Canceled):
				gaveUp++
			default:
				t.Fatal(err)
			}
		}
		if s := g.Stats(); s.Charged != 0 || s.Inside != 0 || s.Waiting != 0 {
			t.Fatalf("%+v", s)
		}
	}
	if in == 0 || refused == 0 || gaveUp == 0 {
		t.Errorf("%d in, %d refused, %d gave up", in, refused, gaveUp)
	}
}

// TestManyJobsLoseNoByte has contexts end, limits change and jobs grow under many goroutines. The sum
// of what is inside is kept beside the gate.
func TestManyJobsLoseNoByte(t *testing.T) {
	const limit = 20_000
	g := taught(t, admit.Config{Limit: limit, Passes: 3, Unknown: 500})
	var inside atomic.Int64
	var wg sync.WaitGroup
	seed := rand.Uint64()
	t.Log("seed", seed)
	for worker := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(worker)))
			for range 500 {
				ctx, cancel := context.WithCancel(t.Context())
				if r.IntN(3) == 0 {
					go cancel()
				}
				a, err := g.Enter(ctx, string(rune('a'+r.IntN(5))), admit.Shape{})
				if err != nil {
					if !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					cancel()
					continue
				}
				if r := int64(a.Reserved()); inside.Add(r) > limit {
					t.Error("more is reserved than there is")
				} else {
					_ = a.Observe(uint64(r) * 9 / 10)
					inside.Add(-r)
				}
				switch r.IntN(4) {
				case 0:
					_ = a.Observe(uint64(r.IntN(30_000)))
				case 1:
					a.Settle(uint64(r.IntN(3000)))
				}
				if r.IntN(2) == 0 {
					a.Abort()
				}
				a.Leave()
				cancel()
			}
		})
	}
	wg.Wait()
	if s := g.Stats(); s.Charged != 0 || s.Inside != 0 || s.Waiting != 0 || s.Entered == 0 {
		t.Errorf("%+v", s)
	}
	g.SetLimit(limit)
	enter(t.Context(), t, g, "d").get(t).Leave()
}

func TestNilAndNonsenseAreRefused(t *testing.T) {
	niltest.Refuses(t, (*admit.Gate)(nil))
	niltest.Refuses(t, (*admit.Admission)(nil))
	niltest.Refuses(t, (*admit.Model)(nil))
	in := enter(t.Context(), t, taught(t, admit.Config{Limit: 5000}), "a").get(t)
	if below := uint64(5); !errors.Is(in.Observe(below-6), core.ErrInvalidRequest) {
		t.Error("a difference below zero is taken for bytes")
	}
	var a *admit.Admission
	a.Settle(1)
	a.Leave()
	a.Abort()
	var m *admit.Model
	m.Observe("a", admit.Shape{}, 1)
	if p := m.Predict("a", admit.Shape{}); p != (admit.Prediction{}) || a.Reserved() != 0 {
		t.Error("nothing predicts", p)
	}
	if _, err := admit.New(admit.Config{Passes: -1}); !errors.Is(err, core.ErrInvalidRequest) {
		t.Error(err)
	}
	if _, err := new(admit.Gate).Enter(t.Context(), "a", admit.Shape{}); !errors.Is(err, core.ErrInvalidRequest) {
		t.Error(err)
	}
	if _, err := taught(t, admit.Config{}).Enter(t.Context(), "x", admit.ShapeOf("rows", -5)); err == nil ||
		!strings.Contains(err.Error(), `"x" of rows 0 needs memory, and the limit is 0 B`) {
		t.Error(err)
	}
}
