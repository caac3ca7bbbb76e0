package path_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/internal/path"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// backend serves at once what comes for one lease, while it is willing, and else makes the block in Prepare.
type backend struct {
	path.Simple
	core.Resource
	path    *path.Path
	lane    path.Lane
	record  path.Record
	willing bool
	serves  []path.Op
}

const lease = core.StreamID(7)

func newBackend() *backend {
	b := &backend{Resource: coretest.NewFake(0), willing: true}
	b.path = path.New(b, share{b}, b)
	b.path.Room().Join(b, b.Resource)
	b.lane.SetPart(path.BackendPart, b)
	return b
}

func (b *backend) Path() *path.Path { return b.path }

func (b *backend) Lane(id core.StreamID) *path.Lane {
	if id != lease {
		return nil
	}
	return &b.lane
}

func (b *backend) Record(*path.Lane, core.Generation) (*path.Record, any) { return &b.record, b }

type share struct{ *backend }

func (s share) Allocate(o *path.Op) bool {
	o.Block = core.Block{Bytes: o.Request.Bytes}
	return s.serve(o)
}

func (s share) Deallocate(o *path.Op) bool {
	o.Block = core.Block{ID: o.ID, State: core.Freed}
	return s.serve(o)
}

func (s share) serve(o *path.Op) bool {
	if o.Lane.TryLock() {
		panic("the lane is not locked")
	}
	s.serves = append(s.serves, *o)
	o.AtOnce = s.willing && o.Lane == &s.lane && !o.NotAtOnce
	return o.AtOnce || o.Got == s.path || o.Decline(s.path)
}

func (s share) Prepare(_ context.Context, o *path.Op) error {
	o.Got = s.path
	return nil
}

// above is a layer that tells what it is asked, and lacks, cures and refuses as the test says.
type above struct {
	core.Resource
	path   *path.Path
	name   string
	told   *[]string
	lacks  int    // tries
	fails  error  // of Prepare
	panics string // where
}

func put(up core.Resource, name string, told *[]string) *above {
	a := &above{Resource: up, name: name, told: told}
	a.path = path.Over(up, false).Extend(a, shareOf{a}, nil)
	return a
}

func (a *above) Path() *path.Path { return a.path }

func (a *above) Allocate(ctx context.Context, req core.Request) (b core.Block, err error) {
	err = a.path.Allocate(ctx, nil, &req, &b)
	return b, err
}

func (a *above) Deallocate(ctx context.Context, id core.BlockID) (b core.Block, err error) {
	a.tell("Deallocate")
	err = a.path.Deallocate(ctx, nil, &id, &b)
	return b, err
}

func (a *above) tell(what string) {
	*a.told = append(*a.told, a.name+" "+what)
	if a.panics == what {
		panic(what)
	}
}

type shareOf struct{ *above }

func (s shareOf) declines(o *path.Op) bool {
	if s.lacks == 0 {
		return false
	}
	s.lacks--
	return !o.Decline(s.path)
}

func (s shareOf) Allocate(o *path.Op) bool {
	return !s.declines(o) && s.path.Below.Layer.Allocate(o)
}

func (s shareOf) Deallocate(o *path.Op) bool {
	return !s.declines(o) && s.path.Below.Layer.Deallocate(o)
}

func (s shareOf) Prepare(_ context.Context, o *path.Op) error {
	if !o.Lane.TryLock() {
		return errors.New("the lane is locked")
	}
	o.Lane.Unlock()
	s.tell("prepares")
	return s.fails
}

func (s shareOf) Yield(*path.Op, error) { s.tell("yields") }

func (s shareOf) Settle(_ context.Context, o *path.Op, err error) error {
	s.tell("settles")
	if err != nil {
		err = fmt.Errorf("%s: %w", s.name, err)
	}
	return err
}

func stack() (b *backend, lower, upper *above, told *[]string) {
	told = new([]string)
	b = newBackend()
	lower = put(b, "lower", told)
	return b, lower, put(lower, "upper", told), told
}

func TestAnOperationIsServedUnderTheLaneOfItsStream(t *testing.T) {
	b := newBackend()
	for stream, atOnce := range map[core.StreamID]bool{lease: true, lease + 1: false} {
		b.serves = nil
		var block core.Block
		must.Do(t, b.path.Allocate(t.Context(), nil, &core.Request{Bytes: 100, Stream: stream}, &block))
		o := b.serves[0]
		if block.Bytes != 100 || (len(b.serves) == 1) != atOnce || (o.Lane == &b.lane) != atOnce {
			t.Errorf("stream %v: %+v, tried %d times", stream, block, len(b.serves))
		}
		if o.Request.Requested != 100 || o.Request.Align != core.DefaultAlign || o.Request.Tag != names.Untagged || o.Began == 0 {
			t.Errorf("the backend was handed %+v", o)
		}
		id := core.BlockID{Generation: 3, AllocStream: stream}
		b.serves = nil
		must.Do(t, b.path.Deallocate(t.Context(), nil, &id, &block))
		if o := b.serves[0]; block.ID != id || block.State != core.Freed || (len(b.serves) == 1) != atOnce || (o.Record == &b.record) != atOnce {
			t.Errorf("stream %v: freed %+v, tried %d times, record %v", stream, block, len(b.serves), o.Record)
		}
		if l := b.path.Lane(stream); !l.TryLock() {
			t.Error("the lane stays locked")
		} else {
			l.Unlock()
		}
	}
	if err := b.path.Allocate(t.Context(), nil, &core.Request{Bytes: 1, Align: 3, Stream: lease}, new(core.Block)); !errors.Is(err, core.ErrInvalidRequest) {
		t.Errorf("a bad alignment: %v", err)
	}
}

// Of what a lane serves at once one in 16 of each kind is timed, the first among them; what is in a sampled trace, and what is
// not served at once, always is.
func TestWhichOperationsAreTimed(t *testing.T) {
	b := newBackend()
	timed := func(ctx context.Context, stream core.StreamID) (allocations, frees []int) {
		var block core.Block
		for i := range 32 {
			must.Do(t, b.path.Allocate(ctx, nil, &core.Request{Bytes: 100, Stream: stream}, &block))
			if o := b.serves[len(b.serves)-1]; o.Timed {
				allocations = append(allocations, i)
			}
			must.Do(t, b.path.Deallocate(ctx, nil, &core.BlockID{Generation: 3, AllocStream: stream}, &block))
			if o := b.serves[len(b.serves)-1]; o.Timed {
				frees = append(frees, i)
			}
		}
		return allocations, frees
	}
	if allocations, frees := timed(t.Context(), lease); !slices.Equal(allocations, []int{0, 16}) || !slices.Equal(frees, allocations) {
		t.Errorf("allocations %v and frees %v", allocations, frees)
	}
	if allocations, frees := timed(core.WithSpan(t.Context(), core.SpanRef{SpanID: [8]byte{1}}), lease); len(allocations)+len(frees) != 64 {
		t.Errorf("in a sampled trace: allocations %v and frees %v", allocations, frees)
	}
	if allocations, frees := timed(t.Context(), lease+1); len(allocations)+len(frees) != 64 {
		t.Errorf("not served at once: allocations %v and frees %v", allocations, frees)
	}
}

func TestWhatLacksIsPreparedAndTriedAgain(t *testing.T) {
	b, lower, upper, told := stack()
	b.willing = false
	lower.lacks, upper.lacks = 2, 1
	if got := must.Get(upper.Allocate(t.Context(), core.Request{Bytes: 9, Stream: lease}))(t); got.Bytes != 9 {
		t.Errorf("%+v", got)
	}
	if want := []string{"upper prepares", "lower prepares", "lower prepares"}; !slices.Equal(*told, want) || len(b.serves) != 2 {
		t.Errorf("told %q, the backend was asked %d times", *told, len(b.serves))
	}
}

// For want of memory the layers that were asked give back what they keep, the innermost first, and the operation is tried
// again. In the end they explain the error.
func TestAnErrorIsCuredOrExplainedByTheLayersThatWereAsked(t *testing.T) {
	_, lower, upper, told := stack()
	lower.lacks, lower.fails = 1, fmt.Errorf("no memory: %w", core.ErrOutOfMemory)
	must.Get(upper.Allocate(t.Context(), core.Request{Bytes: 9, Stream: lease}))(t)
	if want := []string{"lower prepares", "lower yields", "upper yields"}; !slices.Equal(*told, want) {
		t.Errorf("cured: told %q", *told)
	}
	*told, lower.lacks, lower.fails = nil, 1, errors.New("misuse")
	if _, err := upper.Allocate(t.Context(), core.Request{Bytes: 9, Stream: lease}); err == nil || err.Error() != "upper: lower: misuse" {
		t.Errorf("refused: %v", err)
	}
	if want := []string{"lower prepares", "lower settles", "upper settles"}; !slices.Equal(*told, want) {
		t.Errorf("refused: told %q", *told)
	}
	*told, upper.lacks, upper.fails = nil, 1, errors.New("misuse")
	if _, err := upper.Deallocate(t.Context(), core.BlockID{Generation: 3, AllocStream: lease}); err == nil || err.Error() != "upper: misuse" {
		t.Errorf("refused above: %v", err)
	}
	if want := []string{"upper Deallocate", "upper prepares", "upper settles"}; !slices.Equal(*told, want) {
		t.Errorf("refused above: told %q", *told)
	}
}

// Where code of the user's panics the layers give back what they keep, and the block that the caller does not get is freed.
func TestAPanicLeavesNothingBehind(t *testing.T) {
	for where, want := range map[string][]string{
		"prepares": {"lower prepares", "lower settles", "upper settles", "top settles"},
		"settles":  {"lower settles", "upper settles", "top Deallocate"},
	} {
		_, lower, upper, told := stack()
		if lower.panics = where; where == "prepares" {
			lower.lacks = 1
		}
		top := put(upper, "top", told)
		top.path.Layer = settlingAll{shareOf{top}, []*path.Path{lower.path, upper.path}}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: the panic is lost", where)
				}
			}()
			_, _ = top.Allocate(t.Context(), core.Request{Bytes: 9, Stream: lease})
		}()
		if !slices.Equal(*told, want) {
			t.Errorf("%s: told %q, want %q", where, *told, want)
		}
	}
}

// settlingAll has layers settle what was served.
type settlingAll struct {
	shareOf
	all []*path.Path
}

func (s settlingAll) Allocate(o *path.Op) bool {
	ok := s.shareOf.Allocate(o)
	for _, p := range s.all {
		if ok {
			o.Settles(p)
		}
	}
	return ok
}

// Layers that an operation does not go through hear of a free by notice, so the backend tells of it.
func TestAFreeThatBeginsBeneathALayerIsNotServedAtOnce(t *testing.T) {
	b, lower, upper, _ := stack()
	for on, want := range map[*above]bool{lower: false, upper: true} {
		b.serves = nil
		must.Get(on.Deallocate(t.Context(), core.BlockID{Generation: 3, AllocStream: lease}))(t)
		if atOnce := len(b.serves) == 1; atOnce != want {
			t.Errorf("from the %s layer: at once %v", on.name, atOnce)
		}
	}
}

// What a layer keeps in an operation is there at each try, and not in the next operation.
func TestWhatIsKeptLastsAsLongAsTheOperation(t *testing.T) {
	b := newBackend()
	b.willing = false
	k := &keeper{t: t, Resource: b}
	k.path = path.Over(b, false).Extend(k, keeping{keeper: k}, nil)
	for range 3 {
		var block core.Block
		must.Do(t, k.path.Allocate(t.Context(), nil, &core.Request{Bytes: 9, Stream: lease}, &block))
		if k.tries != 2 {
			t.Errorf("tried %d times", k.tries)
		}
		k.tries = 0
	}
}

type keeper struct {
	core.Resource
	t     *testing.T
	path  *path.Path
	tries int
}

type keeping struct {
	path.Simple
	*keeper
}

func (k keeping) Allocate(o *path.Op) bool {
	if n := o.Number(k.path); n != uint64(k.tries) || (o.Kept(k.path) != nil) != (n > 0) {
		k.t.Errorf("try %d: kept %v and %d", k.tries, o.Kept(k.path), n)
	}
	k.tries++
	o.KeepNumber(k.path, uint64(k.tries))
	o.Keep(k.path, k.keeper)
	return k.path.Below.Layer.Allocate(o)
}

func (k keeping) Deallocate(o *path.Op) bool { return k.path.Below.Layer.Deallocate(o) }

// A resource that has no path, a decorator that embeds a layer, and a backend with no room left for a layer are called.
func TestAPathBeginsWithCallsWhereNoneIsBeneath(t *testing.T) {
	told := new([]string)
	b := newBackend()
	var top core.Resource = b
	for range 12 {
		top = put(top, "layer", told)
	}
	for name, up := range map[string]core.Resource{"no path": coretest.NewFake(0), "an embedded layer": struct{ *backend }{newBackend()}, "no room": top} {
		l := put(up, "top", told)
		if l.path.Below.Calls() != (name != "no room") {
			t.Errorf("%s: the path begins with calls: %v", name, l.path.Below.Calls())
		}
		block := must.Get(l.Allocate(t.Context(), core.Request{Bytes: 9, Stream: lease}))(t)
		if must.Get(l.Deallocate(t.Context(), block.ID))(t); block.Bytes != 9 {
			t.Errorf("%s: %+v", name, block)
		}
	}
}
