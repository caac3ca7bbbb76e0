package debugguard_test

import (
	"slices"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

func TestQuarantineSaysWhatItHeldAndWhen(t *testing.T) {
	b := newBench(t, debugguard.Hunt, func(c *debugguard.Config) { c.QuarantineAge = time.Second })
	began := b.clock.Now()
	first, second := b.alloc(512), b.alloc(512) // 1024 with its red zones
	b.free(first)
	b.clock.advance(900 * time.Millisecond)
	b.free(second)
	stay := func(from, until time.Duration) debugguard.Stay {
		s := debugguard.Stay{Tag: "test", Bytes: 1024, From: began.Add(from)}
		if until > 0 {
			s.Until = began.Add(until)
		}
		return s
	}
	want := func(when string, want ...debugguard.Stay) {
		t.Helper()
		got, since := b.guard.Stays()
		slices.SortFunc(got, func(a, b debugguard.Stay) int { return a.From.Compare(b.From) })
		if !slices.Equal(got, want) || !since.IsZero() {
			t.Errorf("%s: %+v since %v, want %+v", when, got, since, want)
		}
	}
	want("both there", stay(0, 0), stay(900*time.Millisecond, 0))
	b.clock.advance(200 * time.Millisecond)
	must.Do(t, b.guard.ReapPending(ctx))
	want("the first gone", stay(0, 1100*time.Millisecond), stay(900*time.Millisecond, 0))
	b.empty()
	want("both gone", stay(0, 1100*time.Millisecond), stay(900*time.Millisecond, 1100*time.Millisecond))
}

// A block that quarantine could not free comes back into it and was there all the
// time.
func TestAStayGoesOnWhenTheFreeFails(t *testing.T) {
	b := newBench(t, debugguard.Hunt)
	b.free(b.alloc(512))
	b.fake.FailNext("Deallocate", errDevice)
	if err := b.guard.Flush(ctx); err == nil {
		t.Fatal("the free did not fail")
	}
	if stays, _ := b.guard.Stays(); len(stays) != 1 || !stays[0].Until.IsZero() {
		t.Errorf("%+v", stays)
	}
	b.empty()
	if stays, _ := b.guard.Stays(); len(stays) != 1 || stays[0].Until.IsZero() {
		t.Errorf("%+v", stays)
	}
}

func TestOldStaysAreForgottenAndThatIsSaid(t *testing.T) {
	const kept = 4096
	b := newBench(t, debugguard.Hunt)
	for range kept + 100 {
		b.free(b.alloc(64))
		b.clock.advance(time.Second)
		b.drain()
	}
	stays, since := b.guard.Stays()
	oldest := slices.MinFunc(stays, func(a, b debugguard.Stay) int { return a.Until.Compare(b.Until) })
	if len(stays) != kept || !since.Equal(oldest.Until.Add(-time.Second)) {
		t.Errorf("%d stays, the oldest until %v, complete since %v", len(stays), oldest.Until, since)
	}
}
