package budget

import (
	"context"
	"runtime"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/cures"
)

// A reservation whose goroutine the program's code ends, behind the last try, holds nothing.
func TestAReservationThatIsBrokenOffHoldsNothing(t *testing.T) {
	fake := coretest.NewFake(0)
	r := newBudget(t, fake, Config{Limit: 100})
	b := mustAllocate(t, r, core.Request{Bytes: 60, Stream: 1})
	r.path.Room().Configure(func(s *cures.Setup) {
		s.Program = func(context.Context, uint64) bool {
			mustFree(t, r, b)
			fake.Pass()
			return true
		}
		s.Events = endsTheGoroutine{}
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = r.Reserve(context.Background(), 80, "claim")
		t.Error("it was not broken off")
	}()
	<-done
	wantCharged(t, r, 0)
}

type endsTheGoroutine struct{}

// Emit ends the goroutine that tells.
func (endsTheGoroutine) Emit(context.Context, oplog.Event) { runtime.Goexit() }
