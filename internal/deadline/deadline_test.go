package deadline

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
)

func TestWithinGivesUpOnWhatDoesNotReturn(t *testing.T) {
	failure := errors.New("failure")
	expect.Error(t, Within(t.Context(), func() error { return failure }), failure, "what returned was lost")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	hangs := make(chan struct{})
	defer close(hangs)
	if err := Within(ended, func() error { <-hangs; return nil }); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("what hangs: %v", err)
	}
}

func TestThereIsAMomentLeftAfterTheEnd(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := AtLeastAMoment(func(ctx context.Context) error { return ctx.Err() })(ended); err != nil {
		t.Errorf("no time was left: %v", err)
	}
	if err := AtLeastAMoment(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })(ended); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the moment does not end: %v", err)
	}
}

func TestPollAsksUntilItIsDoneFailsOrTheContextEnds(t *testing.T) {
	failure := errors.New("failure")
	asked := 0
	ask := func(answers ...error) func() (bool, error) {
		asked = 0
		return func() (bool, error) {
			asked++
			return asked > len(answers), answers[min(asked, len(answers))-1]
		}
	}
	if err := Poll(t.Context(), ask(nil, nil, nil)); err != nil || asked != 4 {
		t.Errorf("asked %d times: %v", asked, err)
	}
	if err := Poll(t.Context(), ask(nil, failure)); !errors.Is(err, failure) || asked != 2 {
		t.Errorf("asked %d times: %v", asked, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	never := func() (bool, error) { return false, nil }
	expect.Error(t, Poll(ended, never), context.Canceled, "the context has ended")
}
