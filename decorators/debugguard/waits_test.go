package debugguard_test

import (
	"context"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
)

// drainForGood drains on a device that is held, and returns when that waits.
func (b *bench) drainForGood() (ended <-chan error) {
	b.Helper()
	done, before := make(chan error, 1), b.mem.count("Wait")
	go func() { done <- b.guard.Drain(ctx) }()
	for b.mem.count("Wait") == before {
		time.Sleep(time.Millisecond)
	}
	return done
}

// soon fails if f does not return, and lets the device go on then.
func (b *bench) soon(what string, f func()) {
	b.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		b.Errorf("%s is held up by who drains", what)
		b.mem.release()
		<-done
	}
}

func TestADrainEndsWithItsContextWhileAnotherWaits(t *testing.T) {
	b := newBench(t, debugguard.Hunt)
	b.mem.hold()
	b.free(b.alloc(64))
	patient := b.drainForGood()
	b.soon("another Drain", func() {
		short, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
		defer cancel()
		expect.Error(t, b.guard.Drain(short), context.DeadlineExceeded, "Drain")
	})
	b.mem.release()
	expect.Success(t, <-patient)
	b.empty()
}

// The device may be waiting for what the program does behind its launches, and
// somebody drains meanwhile.
func TestBisectingIsNotHeldUpByWhoDrains(t *testing.T) {
	b := newBench(t, debugguard.Hunt, bisecting)
	block := b.alloc(64)
	b.mem.hold()
	for range 70 {
		b.launch("before", 1, func() {}, block)
	}
	patient := b.drainForGood()
	b.soon("a launch", func() {
		for range 20 {
			b.launch("beside", 1, func() {}, block)
		}
	})
	b.mem.release()
	expect.Success(t, <-patient)
	b.free(block)
	b.empty()
}

// held is a fake on which an access of the guard's own does not end.
type held struct{ *coretest.Fake }

func (held) PrepareUse(context.Context, core.UseRequest) (core.Ticket, error) {
	return core.Ticket{}, &core.StreamMisuseError{Op: "PrepareUse", Holder: &core.UseRecord{Launch: "gpumem.guard.verify"}}
}

// An access of the guard's ends at once, unless something keeps its end from being recorded: callers
// that do not wait are not kept for ever then.
func TestAnAccessOfTheGuardsThatDoesNotEndKeepsNobodyForEver(t *testing.T) {
	b := newBench(t, debugguard.Off)
	b.guard = b.over(held{b.fake}, debugguard.Ledger)
	told := make(chan error, 1)
	go func() {
		_, err := b.guard.PrepareUse(ctx, core.UseRequest{Stream: 1, Launch: "caller"})
		told <- err
	}()
	select {
	case err := <-told:
		expect.Error(t, err, core.ErrStreamMisuse, "the launch")
	case <-time.After(time.Minute):
		t.Error("it waits still")
	}
}
