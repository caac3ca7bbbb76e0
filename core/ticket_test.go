package core_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

func openIntent(t *testing.T, owner core.Resource, uses ...core.Use) *core.Intent {
	t.Helper()
	in, err := core.OpenIntent(owner, &core.UseRequest{Stream: 1, Launch: "kernel", Uses: uses})
	succeed(t, "open an intent", err)
	return in
}

func TestTicketEndsOnceWhereItWasGiven(t *testing.T) {
	owner, other := coretest.NewFake(0), coretest.NewFake(0)
	in := openIntent(t, owner)
	ticket := in.Ticket(owner)
	mustBe(t, "open before the end", ticket.IsOpen(), true)

	_, err := ticket.End(other, "FinishUse")
	misuse(t, "foreign end", err, "another runtime")
	mustBe(t, "open after the foreign end", ticket.IsOpen(), true)

	got, err := ticket.End(owner, "FinishUse")
	succeed(t, "end", err)
	mustBe(t, "intent that was ended", got, in)
	mustBe(t, "open after the end", ticket.IsOpen(), false)
	_, err = ticket.End(owner, "AbortUse")
	misuse(t, "second end", err, "AbortUse: the ticket was ended before")
	got.Recycle()
}

func TestZeroTicket(t *testing.T) {
	var zero core.Ticket
	_, err := zero.End(coretest.NewFake(0), "FinishUse")
	misuse(t, "end of the zero ticket", err, "the ticket is empty")
	mustBe(t, "whether the zero ticket is open", zero.IsOpen(), false)
	if zero.Intent() != nil {
		t.Errorf("the zero ticket has the intent %+v", zero.Intent())
	}
	mustBe(t, "its context", zero.Context(t.Context()), t.Context())
	_, claimed := zero.Claim()
	mustBe(t, "whether it was claimed", claimed, false)
}

// A recycled intent serves another launch; the ticket of the first must not
// end the second.
func TestTicketOfARecycledIntentStaysSpent(t *testing.T) {
	owner := coretest.NewFake(0)
	in := openIntent(t, owner)
	first := in.Ticket(owner)
	_, err := first.End(owner, "FinishUse")
	succeed(t, "end", err)
	second := in.Ticket(owner)
	_, err = first.End(owner, "FinishUse")
	misuse(t, "end of the first ticket", err, "ended before")
	mustBe(t, "whether the second ticket is open", second.IsOpen(), true)
	mustBe(t, "whether the first ticket is open", first.IsOpen(), false)
	_, err = second.End(owner, "FinishUse")
	succeed(t, "end of the second ticket", err)
	in.Recycle()
}

func TestOfConcurrentEndsExactlyOneWins(t *testing.T) {
	owner := coretest.NewFake(0)
	for range 500 {
		in := openIntent(t, owner)
		ticket := in.Ticket(owner)
		var won atomic.Int32
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if _, err := ticket.End(owner, "FinishUse"); err == nil {
					won.Add(1)
				}
			})
		}
		wg.Wait()
		mustBe(t, "number of ends that won", won.Load(), int32(1))
		in.Recycle()
	}
}

// A look at an open launch sees that launch, however many try to end it and although its
// intent serves others at once; and none sees a launch whose ticket was claimed.
func TestHammerALookHoldsUpTheEnd(t *testing.T) {
	owner := coretest.NewFake(0)
	var group sync.WaitGroup
	var looks atomic.Int32
	for range 4 {
		group.Go(func() {
			for i := range 500 {
				in := openIntent(t, owner)
				in.Handle = in.ID
				ticket := in.Ticket(owner)
				var won atomic.Int32
				var all sync.WaitGroup
				for range 3 {
					all.Go(func() {
						in.WhileOpen(func() {
							looks.Add(1)
							if in.Handle != any(in.ID) {
								t.Errorf("looked at launch %v through the intent of launch %d", in.Handle, in.ID)
							}
						})
						own, ok := ticket.Claim()
						if !ok {
							_, err := ticket.End(owner, "FinishUse")
							expect.Error(t, err, core.ErrStreamMisuse, "the end of a ticket that another call has claimed")
							return
						}
						if in.WhileOpen(func() {}) {
							t.Error("looked at a launch that is being ended")
						}
						if i%2 == 0 {
							if another, ok := own.Claim(); ok { // as a second layer does
								own = another
							} else {
								t.Error("a claimed ticket cannot be claimed")
							}
						}
						if in, err := own.End(owner, "FinishUse"); err == nil {
							won.Add(1)
							in.Recycle()
						}
					})
				}
				all.Wait()
				mustBe(t, "number of ends that won", won.Load(), int32(1))
				mustBe(t, "whether an ended ticket is open", ticket.IsOpen(), false)
			}
		})
	}
	group.Wait()
	if looks.Load() < 2000 {
		t.Errorf("%d looks at 2000 launches", looks.Load())
	}
}

func TestADisclaimedTicketEndsItsLaunch(t *testing.T) {
	owner, other := coretest.NewFake(0), coretest.NewFake(0)
	ticket := openIntent(t, owner).Ticket(owner)
	own, ok := ticket.Claim()
	mustBe(t, "whether it was claimed", ok, true)
	mustBe(t, "whether a claimed ticket is open", ticket.IsOpen(), false)
	_, err := own.End(other, "FinishUse")
	expect.Error(t, err, core.ErrStreamMisuse, "another owner's ticket")
	ticket.Disclaim(own)
	mustBe(t, "whether it is open again", ticket.IsOpen() && ticket.Intent().WhileOpen(func() {}), true)
	in, err := ticket.End(owner, "FinishUse")
	must.Do(t, err)
	ticket.Disclaim(own) // too late
	mustBe(t, "whether it is open", ticket.IsOpen() || own.IsOpen(), false)
	in.Recycle()
}

func TestOpenIntentSortsAndFolds(t *testing.T) {
	owner := coretest.NewFake(0)
	id := func(g core.Generation) core.BlockID { return core.BlockID{Ptr: 64 * uint64(g), Generation: g} }
	view := id(3)
	view.Ptr += 8
	in := openIntent(t, owner, core.Use{Block: id(3), Access: core.Read}, core.Use{Block: id(1), Access: core.Write},
		core.Use{Block: view, Access: core.Write}, core.Use{Block: id(2), Access: core.Read}, core.Use{Block: id(2), Access: core.Read})
	want := []core.Use{{Block: id(1), Access: core.Write}, {Block: id(2), Access: core.Read}, {Block: id(3), Access: core.ReadWrite}}
	mustBe(t, "number of uses", len(in.Uses), len(want))
	for i := range want {
		mustBe(t, "use", use(in.Uses[i]), want[i])
	}
	mustBe(t, "launch", in.Launch, "kernel")
	mustBe(t, "stream", in.Stream, core.StreamID(1))
	in.Recycle()
}

func TestOpenIntentRefuses(t *testing.T) {
	owner := coretest.NewFake(2)
	good := core.BlockID{Ptr: 64, Generation: 1, Ordinal: 2}
	foreign := core.BlockID{Ptr: 64, Generation: 1, Ordinal: 1}
	_, err := core.OpenIntent(owner, &core.UseRequest{Uses: []core.Use{{Block: good, Access: core.Read}, {Block: foreign, Access: core.Read}}})
	misuse(t, "another device's block", err, "the block belongs to device 1, this runtime serves device 2")
	for _, access := range []core.Access{0, 4, 255} {
		_, err = core.OpenIntent(owner, &core.UseRequest{Uses: []core.Use{{Block: good, Access: access}}})
		if !isInvalid(err, "Access") {
			t.Errorf("access %d: got %v, want an invalid request", access, err)
		}
	}
}

func TestRecycledIntentIsClean(t *testing.T) {
	owner := coretest.NewFake(0)
	in := openIntent(t, owner, core.Use{Block: core.BlockID{Ptr: 64, Generation: 1}, Access: core.Read})
	seen := map[uint64]bool{in.ID: true}
	in.Uses[0].Handle, in.Handle, in.Trace, in.Context, in.CrossStream = owner, owner, owner, t.Context(), true
	in.Waited = append(in.Waited, core.Waited{Stream: 9})
	in.Recycle()
	for range 100 { // the pool may hand out others first
		again := openIntent(t, owner)
		if again.ID == 0 || seen[again.ID] {
			t.Fatalf("a second launch has the number %d", again.ID)
		}
		seen[again.ID] = true
		if len(again.Uses)+len(again.Waited) != 0 || again.Handle != nil || again.Trace != nil || again.Context != nil || again.CrossStream {
			t.Fatalf("a new intent holds something of an older one: %+v", again)
		}
	}
}

type contextKey struct{}

func TestTicketCounts(t *testing.T) {
	owner := coretest.NewFake(0)
	in := openIntent(t, owner, core.Use{Block: core.BlockID{Generation: 1}, Access: core.Read}, core.Use{Block: core.BlockID{Generation: 2}, Access: core.Read})
	in.Uses[0].Elided, in.Uses[1].Elided = 2, 3
	in.Waited = append(in.Waited, core.Waited{}, core.Waited{})
	in.Context = context.WithValue(t.Context(), contextKey{}, "span")
	ticket := in.Ticket(owner)
	mustBe(t, "waits", ticket.Waits(), 2)
	mustBe(t, "elided", ticket.Elided(), 5)
	mustBe(t, "context's span", ticket.Context(t.Context()).Value(contextKey{}), any("span"))
	_, err := ticket.End(owner, "AbortUse")
	succeed(t, "end", err)
	in.Recycle()
}

func TestHammerLaunchNumbersAreUnique(t *testing.T) {
	const goroutines, launches = 8, 2000
	owner := coretest.NewFake(0)
	var seen sync.Map
	var group sync.WaitGroup
	start := make(chan struct{})
	for range goroutines {
		group.Go(func() {
			<-start
			for range launches {
				in, err := core.OpenIntent(owner, &core.UseRequest{})
				if err != nil {
					t.Error(err)
					return
				}
				if _, twice := seen.LoadOrStore(in.ID, true); twice || in.ID == 0 {
					t.Errorf("a second launch has the number %d", in.ID)
				}
				in.Recycle()
			}
		})
	}
	close(start)
	group.Wait()
}
