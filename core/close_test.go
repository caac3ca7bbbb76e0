package core_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/core/names"
)

func TestCloseOfACleanRuntime(t *testing.T) {
	rt, _, found := fakeRuntime(t)
	b := alloc(t, rt, 64)
	_, err := rt.Deallocate(t.Context(), b.ID)
	succeed(t, "deallocate", err)
	left, err := rt.Close(t.Context())
	succeed(t, "close", err)
	mustBe(t, "number of leaks", len(left.Leaks), 0)
	mustBe(t, "leaked bytes", left.LeakedBytes, uint64(0))
	mustBe(t, "state of the freed block", rt.State(b.ID), core.Freed)
	mustBe(t, "number of findings", found.count(), 0)
	health := rt.Health()
	mustBe(t, "OK", health.OK, false)
	mustBe(t, "state", health.State, names.HealthClosed)
	mustBe(t, "reason", health.Reason, "closed")
}

func TestCloseListsLeaksWithTheirTags(t *testing.T) {
	rt, _, found := fakeRuntime(t)
	var want []core.Block
	for _, r := range []core.Request{{Bytes: 128, Requested: 100, Tag: "index"}, {Bytes: 50, Tag: "sort"}} {
		b, err := rt.Allocate(t.Context(), r)
		succeed(t, "allocate", err)
		want = append(want, b)
	}
	open, err := rt.PrepareBlockUse(t.Context(), want[0].ID, 1, core.Read)
	succeed(t, "prepare", err)

	left, err := rt.Close(t.Context())
	succeed(t, "close", err)
	mustBe(t, "leaked bytes", left.LeakedBytes, uint64(150))
	mustBe(t, "open intents", left.OpenIntents, uint64(1))
	mustBe(t, "number of leaks", len(left.Leaks), 2)
	all := found.take()
	mustBe(t, "number of findings", len(all), 2)
	for i, b := range want {
		mustBe(t, "leak", left.Leaks[i].Block, b)
		mustBe(t, "victim", all[i].Victim, b)
		mustBe(t, "kind", all[i].Kind, names.FindingLeak)
		mustBe(t, "whether the text names the tag", strings.Contains(all[i].Text, string(b.Tag)), true)
	}
	succeed(t, "end of an open use after close", rt.FinishUse(t.Context(), open))
}

func TestCloseRefusesFurtherWork(t *testing.T) {
	rt, fake, _ := fakeRuntime(t)
	b := alloc(t, rt, 64)
	_, err := rt.Close(t.Context())
	succeed(t, "close", err)
	fake.Calls()
	_, allocate := rt.Allocate(t.Context(), core.Request{Bytes: 1})
	_, deallocate := rt.Deallocate(t.Context(), b.ID)
	_, reserve := rt.Reserve(t.Context(), 1, "")
	_, again := rt.Close(t.Context())
	launch := rt.Launch(t.Context(), 1, nil, func(context.Context) error { t.Error("launched after close"); return nil })
	record := rt.RecordBlockUse(t.Context(), b.ID, 1)
	for op, err := range map[string]error{"allocate": allocate, "deallocate": deallocate, "reserve": reserve, "launch": launch, "record": record, "second close": again} {
		mustBe(t, "whether "+op+" was refused as closed", errors.Is(err, core.ErrClosed), true)
	}
	mustBe(t, "number of calls that reached the resource", len(fake.Calls()), 0)
}

// stuck is a fake whose device never passes a free.
type stuck struct{ *coretest.Fake }

func (stuck) Drain(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestCloseIsBoundedByItsContext(t *testing.T) {
	rt := newRuntime(t, stuck{coretest.NewFake(0)}, nil)
	alloc(t, rt, 70)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	left, err := rt.Close(ctx)
	mustBe(t, "whether close says that the time was up", errors.Is(err, context.DeadlineExceeded), true)
	mustBe(t, "leaked bytes", left.LeakedBytes, uint64(70))
}

func TestCloseOfALostDeviceReturnsAtOnce(t *testing.T) {
	found := new(findings)
	rt := newRuntime(t, stuck{coretest.NewFake(0)}, found.Report)
	alloc(t, rt, 70)
	rt.ReportSticky("kernel", lost)
	left, err := rt.Close(context.Background()) // a drain would never return
	succeed(t, "close", err)
	mustBe(t, "bytes that could not be given back", left.LeakedBytes, uint64(70))
	mustBe(t, "number of leaks: nothing could be given back", len(left.Leaks), 0)
	mustBe(t, "number of findings", found.count(), 1)
	mustBe(t, "its kind", found.take()[0].Kind, names.FindingStickyError)
}

// unlisted hides the fake's list of blocks.
type unlisted struct {
	core.Resource
}

func (unlisted) Inspect() core.Inspector { return core.Unsupported{}.Inspect() }

func TestCloseCountsLeaksThatItCannotList(t *testing.T) {
	rt := newRuntime(t, unlisted{coretest.NewFake(0)}, nil)
	alloc(t, rt, 70)
	left, err := rt.Close(t.Context())
	succeed(t, "close", err)
	mustBe(t, "number of leaks", len(left.Leaks), 0)
	mustBe(t, "leaked bytes", left.LeakedBytes, uint64(70))
}

func TestOnlyOneOfConcurrentClosesWins(t *testing.T) {
	rt, _, _ := fakeRuntime(t)
	results := make(chan error, 8)
	for range cap(results) {
		go func() {
			_, err := rt.Close(context.Background())
			results <- err
		}()
	}
	won := 0
	for range cap(results) {
		if err := <-results; err == nil {
			won++
		} else if !errors.Is(err, core.ErrClosed) {
			t.Errorf("a concurrent close: %v", err)
		}
	}
	mustBe(t, "closes that won", won, 1)
}

// underflowing is a fake whose books went wrong.
type underflowing struct{ *coretest.Fake }

func (u underflowing) Stats() core.Stats {
	s := u.Fake.Stats()
	s.Underflows = 2
	return s
}

func TestCloseReportsBooksThatWentWrong(t *testing.T) {
	found := &findings{}
	rt, err := core.NewRuntime(underflowing{coretest.NewFake(0)}, found.Report)
	succeed(t, "new runtime", err)
	_, err = rt.Close(t.Context())
	succeed(t, "close", err)
	all := found.take()
	mustBe(t, "number of findings", len(all), 1)
	mustBe(t, "kind", all[0].Kind, names.FindingAccountingMismatch)
}

// aged is a fake that knows when its blocks were allocated.
type aged struct {
	*coretest.Fake
	ago time.Duration
}

func (a *aged) Inspect() core.Inspector { return listing{a.Fake.Inspect(), a} }

type listing struct {
	core.Inspector
	of *aged
}

func (l listing) Blocks(yield func(core.BlockInfo) bool) {
	a := l.of
	l.Inspector.Blocks(func(info core.BlockInfo) bool {
		info.Allocated = time.Now().Add(-a.ago)
		return yield(info)
	})
}

func TestALeakTellsItsAge(t *testing.T) {
	found := new(findings)
	rt := newRuntime(t, &aged{Fake: coretest.NewFake(0), ago: 90 * time.Second}, found.Report)
	alloc(t, rt, 64)
	_, err := rt.Close(t.Context())
	succeed(t, "close", err)
	all := found.take()
	mustBe(t, "number of findings", len(all), 1)
	mustBe(t, "whether the text tells the age: "+all[0].Text, strings.Contains(all[0].Text, "allocated 1m30"), true)
}

// What is out when Close begins is taken back, and is no leak; new work is refused.
func TestCloseTakesBackWhatIsOut(t *testing.T) {
	rt, _, found := fakeRuntime(t)
	freed, used := alloc(t, rt, 64), alloc(t, rt, 64)
	ticket, err := rt.PrepareBlockUse(t.Context(), used.ID, 1, core.Read)
	succeed(t, "prepare", err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	closed := make(chan core.Leftover)
	go func() {
		left, err := rt.Close(ctx)
		if err != nil {
			t.Errorf("close: %v", err)
		}
		closed <- left
	}()
	for rt.Health().OK {
		time.Sleep(time.Millisecond)
	}
	_, refused := rt.Allocate(t.Context(), core.Request{Bytes: 1})
	mustBe(t, "whether an allocation is refused", errors.Is(refused, core.ErrClosed), true)
	for _, b := range []core.Block{freed, used} {
		_, err := rt.Deallocate(t.Context(), b.ID)
		succeed(t, "deallocate", err)
	}
	succeed(t, "finish", rt.FinishUse(t.Context(), ticket))
	left := <-closed
	mustBe(t, "what is left", left.String(), "nothing")
	mustBe(t, "number of findings", found.count(), 0)
}

// overtaken is a resource that a Close overtakes in every call for new work.
type overtaken struct {
	*coretest.Fake
	overtake func()
}

func (o *overtaken) Allocate(ctx context.Context, r core.Request) (core.Block, error) {
	o.overtake()
	return o.Fake.Allocate(ctx, r)
}

func (o *overtaken) PrepareUse(ctx context.Context, r core.UseRequest) (core.Ticket, error) {
	o.overtake()
	return o.Fake.PrepareUse(ctx, r)
}

func (o *overtaken) Reserve(context.Context, uint64, core.Tag) (core.Claim, error) {
	o.overtake()
	return core.Claim{ID: 7}, nil
}

func (o *overtaken) ReleaseClaim(_ context.Context, id core.ClaimID) error {
	if id != 7 {
		return core.ErrInvalidRequest
	}
	return errReleased
}

var errReleased = errors.New("the claim was given back")

func TestWorkThatCloseOvertakesIsTakenBack(t *testing.T) {
	for name, work := range map[string]func(rt *core.Runtime) error{
		"Allocate":   func(rt *core.Runtime) error { return errorOf(rt.Allocate(t.Context(), core.Request{Bytes: 64})) },
		"PrepareUse": func(rt *core.Runtime) error { return errorOf(rt.PrepareUse(t.Context(), core.UseRequest{})) },
		"Reserve":    func(rt *core.Runtime) error { return errorOf(rt.Reserve(t.Context(), 64, "")) },
	} {
		t.Run(name, func(t *testing.T) {
			o := &overtaken{Fake: coretest.NewFake(0)}
			rt := newRuntime(t, o, nil)
			o.overtake = func() {
				left, err := rt.Close(t.Context())
				succeed(t, "close", err)
				mustBe(t, "number of leaks", len(left.Leaks), 0)
			}
			err := work(rt)
			mustBe(t, "whether it was refused as closed", errors.Is(err, core.ErrClosed), true)
			mustBe(t, "whether a claim was given back", errors.Is(err, errReleased), name == "Reserve")
			o.Pass()
			st := o.Stats()
			mustBe(t, "blocks and intents that are left", st.Live.Blocks+st.Pending.Blocks+st.OpenIntents, uint64(0))
		})
	}
}

func errorOf[T any](_ T, err error) error { return err }

// hurried drains only while there is time.
type hurried struct{ *coretest.Fake }

func (hurried) Drain(ctx context.Context) error { return ctx.Err() }

// Close waits until its deadline for a block that never comes back, and has time to drain all
// the same.
func TestALeakCostsCloseNoDrain(t *testing.T) {
	rt := newRuntime(t, hurried{coretest.NewFake(0)}, nil)
	alloc(t, rt, 70)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	left, err := rt.Close(ctx)
	succeed(t, "close", err)
	mustBe(t, "number of leaks", len(left.Leaks), 1)
}
