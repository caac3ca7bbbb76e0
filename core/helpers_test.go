package core_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// findings collects what a runtime reports.
type findings struct {
	mu  sync.Mutex
	all []core.Finding
}

func (f *findings) Report(finding core.Finding) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, finding)
}

func (f *findings) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.all)
}

// take returns what was reported and forgets it.
func (f *findings) take() []core.Finding {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.all
	f.all = nil
	return all
}

// fakeRuntime is a runtime over a tracking backend.
func fakeRuntime(t *testing.T) (*core.Runtime, *coretest.Fake, *findings) {
	t.Helper()
	fake, found := coretest.NewFake(0), new(findings)
	return newRuntime(t, fake, found.Report), fake, found
}

func newRuntime(t *testing.T, resource core.Resource, findings func(core.Finding)) *core.Runtime {
	t.Helper()
	return must.Get(core.NewRuntime(resource, findings))(t)
}

// direct is a backend that cannot track uses, like cuda.DirectResource.
type direct struct {
	*coretest.Fake
	none core.Unsupported
}

func newDirect() direct {
	return direct{coretest.NewFake(0), core.Unsupported{Resource: "direct(fake:0)"}}
}

func (d direct) Features() core.Features { return 0 }
func (d direct) String() string          { return "direct(fake:0)" }

func (d direct) PrepareUse(ctx context.Context, r core.UseRequest) (core.Ticket, error) {
	return d.none.PrepareUse(ctx, r)
}

func (d direct) RecordUse(ctx context.Context, id core.BlockID, s core.StreamID) error {
	return d.none.RecordUse(ctx, id, s)
}

func (d direct) FinishUse(ctx context.Context, t core.Ticket) error { return d.none.FinishUse(ctx, t) }
func (d direct) AbortUse(ctx context.Context, t core.Ticket) error  { return d.none.AbortUse(ctx, t) }

// buffer is memory as a typed layer would present it.
type buffer struct{ id core.BlockID }

func (b buffer) BlockID() core.BlockID { return b.id }

var (
	legacy = buffer{core.BlockID{Generation: core.NoBlock}}
	empty  = buffer{core.BlockID{Generation: core.NoBytes}}
)

func column(b core.Block) buffer { return buffer{b.ID} }

func alloc(t *testing.T, rt *core.Runtime, bytes uint64) core.Block {
	t.Helper()
	return must.Get(rt.Allocate(t.Context(), core.Request{Bytes: bytes, Stream: 1, Tag: "test"}))(t)
}

func succeed(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// misuse checks that err is a StreamMisuse with text in it.
func misuse(t *testing.T, what string, err error, text string) {
	t.Helper()
	var m *core.StreamMisuseError
	if !errors.As(err, &m) || !errors.Is(err, core.ErrStreamMisuse) || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: got %v, want a stream misuse saying %q", what, err, text)
	}
}

func mustBe[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

func isInvalid(err error, field string) bool {
	var invalid *core.InvalidRequestError
	return errors.Is(err, core.ErrInvalidRequest) && errors.As(err, &invalid) && invalid.Field == field
}

// use is what a launch declared.
func use(u core.PreparedUse) core.Use { return core.Use{Block: u.Block, Access: u.Access} }
