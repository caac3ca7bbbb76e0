package core_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/refuse"
)

var sentinels = map[string]error{
	"OutOfBudget": core.ErrOutOfBudget, "ClaimExceeded": core.ErrClaimExceeded, "Driver": core.ErrDriver, "OutOfMemory": core.ErrOutOfMemory, "Sticky": core.ErrSticky,
	"StreamMisuse": core.ErrStreamMisuse, "UseAfterFree": core.ErrUseAfterFree, "OutOfBounds": core.ErrOutOfBounds,
	"InvalidRequest": core.ErrInvalidRequest, "Closed": core.ErrClosed, "Unsupported": errors.ErrUnsupported,
}

func TestErrorsMatchTheirSentinelsOnly(t *testing.T) {
	for _, c := range []struct {
		err  error
		want []string
	}{
		{&core.OutOfBudgetError{}, []string{"OutOfBudget"}},
		{&core.OutOfBudgetError{Claim: 1}, []string{"ClaimExceeded"}},
		{&core.DriverError{}, []string{"Driver"}},
		{&core.DriverError{OutOfMemory: true}, []string{"Driver", "OutOfMemory"}},
		{&core.DriverError{Sticky: true}, []string{"Driver", "Sticky"}},
		{&core.StreamMisuseError{}, []string{"StreamMisuse"}},
		{&core.StreamMisuseError{Unsupported: true}, []string{"StreamMisuse", "Unsupported"}},
		{refuse.Unsupported("Reserve", "direct", "do not"), []string{"StreamMisuse", "Unsupported"}},
		{&core.UseAfterFreeError{}, []string{"UseAfterFree"}},
		{&core.OutOfBoundsError{}, []string{"OutOfBounds"}},
		{&core.InvalidRequestError{}, []string{"InvalidRequest"}},
		{core.NotEnqueued(core.ErrClosed), []string{"Closed"}},
	} {
		want := map[string]bool{}
		for _, name := range c.want {
			want[name] = true
		}
		for name, sentinel := range sentinels {
			wrapped := fmt.Errorf("wrapped: %w", c.err)
			if errors.Is(wrapped, sentinel) != want[name] {
				t.Errorf("errors.Is(%T %+v, %s) is %v", c.err, c.err, name, !want[name])
			}
		}
	}
}

func TestErrorTexts(t *testing.T) {
	id := core.BlockID{Ptr: 0x100, Generation: 5}
	for _, c := range []struct {
		err  error
		want string
	}{
		{&core.OutOfBudgetError{Requested: 10, Remaining: 4, Limit: 100, Live: 90, Pending: 3, Quarantined: 2, Claimed: 1},
			`out of budget: requested 10 B for "untagged", remaining 4 B of 100 B (live 90 B, pending 3 B, quarantined 2 B, claimed 1 B)`},
		{&core.OutOfBudgetError{Requested: 10, Limit: 100, Live: 100, Tag: "sort", Holders: []core.Holder{
			{Tag: "index", State: core.Live, Bytes: 80, Blocks: 2}, {Tag: "sort", State: core.Retired, Bytes: 20, Blocks: 1}}},
			`out of budget: requested 10 B for "sort", remaining 0 B of 100 B (live 100 B, pending 0 B, quarantined 0 B, claimed 0 B); largest holders: index live 80 B in 2 blocks, sort retired 20 B in 1 block`},
		{&core.OutOfBudgetError{Requested: 10, Limit: 100, Quarantined: 100, Tag: "sort", Holders: []core.Holder{{Tag: "index", State: core.Quarantined, Bytes: 100, Blocks: 2}}},
			`out of budget: requested 10 B for "sort", remaining 0 B of 100 B (live 0 B, pending 0 B, quarantined 100 B, claimed 0 B); largest holders: index quarantined 100 B in 2 blocks`},
		{&core.OutOfBudgetError{Requested: 10, Limit: 100, Claimed: 100, Tag: "sort", Holders: []core.Holder{
			{Tag: "sort", State: core.Claimed, Bytes: 80, Blocks: 1}, {Tag: "join", State: core.Claimed, Bytes: 20, Blocks: 2}}},
			`out of budget: requested 10 B for "sort", remaining 0 B of 100 B (live 0 B, pending 0 B, quarantined 0 B, claimed 100 B); ` +
				`largest holders: sort claimed 80 B in 1 reservation, join claimed 20 B in 2 reservations`},
		{&core.OutOfBudgetError{Requested: 4000, Remaining: 4, Limit: 1 << 20, Live: 4012, Tag: "table", Claim: 1, Reserved: 12,
			Holders: []core.Holder{{Tag: "other", State: core.Live, Bytes: 4000, Blocks: 1}}},
			`reservation exceeded: requested 3.9 KiB for "table", remaining 4 B of 12 B reserved (drawn 8 B): ` +
				`reserve more, at least the sum of what is allocated at a time; freed memory counts until the device has passed its free`},
		{&core.OutOfBudgetError{Requested: 3 << 20, Remaining: 5 << 20, Limit: 8 << 20, Claimed: 3 << 20, Tag: "sort",
			MoreHolders: 2, MoreBytes: 3 << 19,
			Holders: []core.Holder{{Tag: "join", State: core.Claimed, Bytes: 3 << 19, Blocks: 1}},
			Wait:    core.Wait{For: 1234 * time.Millisecond, Ahead: 2, AheadBytes: 9 << 20, First: "join"}},
			`out of budget: requested 3.0 MiB for "sort", remaining 5.0 MiB of 8.0 MiB; waited 1.234s; in line behind 2 requests for 9.0 MiB, the first of "join" ` +
				`(live 0 B, pending 0 B, quarantined 0 B, claimed 3.0 MiB); largest holders: join claimed 1.5 MiB in 1 reservation, and 2 more hold 1.5 MiB`},
		{&core.OutOfBudgetError{Requested: 1 << 30, Remaining: 1<<30 - 1, Limit: 1 << 30, Live: 1, MoreHolders: 1,
			MoreBytes: 1},
			`out of budget: requested 1073741824 B for "untagged", remaining 1073741823 B of 1073741824 B (live 1 B, pending 0 B, quarantined 0 B, claimed 0 B), and 1 more holds 1 B`},
		{&core.WaitError{Requested: 5 << 20, Tag: "sort",
			Wait: core.Wait{For: 1500 * time.Microsecond, Pending: 2 << 20, Learning: true}, Err: context.Canceled},
			`a request of 5.0 MiB for "sort": waited 1.5ms; the device had not come to 2.0 MiB that are freed; what jobs of this name need is being learned: context canceled`},
		{&core.WaitError{Requested: 5 << 20, Tag: "sort", Limit: 8 << 20, Remaining: 1 << 20, MoreHolders: 2,
			MoreBytes: 1 << 20,
			Holders:   []core.Holder{{Tag: "join", State: core.Claimed, Bytes: 6 << 20, Blocks: 1}},
			Wait:      core.Wait{For: 51 * time.Millisecond}, Err: context.DeadlineExceeded},
			`a request of 5.0 MiB for "sort": waited 51ms; remaining 1.0 MiB of 8.0 MiB; ` +
				`largest holders: join claimed 6.0 MiB in 1 reservation, and 2 more hold 1.0 MiB: context deadline exceeded`},
		{&core.WaitError{Requested: 5 << 20, Tag: "sort", Limit: 8 << 20, Remaining: 7 << 20, Kept: 2 << 20,
			Wait: core.Wait{For: 51 * time.Millisecond}, Err: context.DeadlineExceeded},
			`a request of 5.0 MiB for "sort": waited 51ms; remaining 7.0 MiB of 8.0 MiB, 2.0 MiB of that kept ` +
				`for jobs inside, which may need more than they reserved; ` +
				`the room came only as the wait ended: context deadline exceeded`},
		{&core.WaitError{Requested: 5, Err: context.Canceled},
			`a request of 5 B for "untagged": did not wait: context canceled`},
		{&core.DriverError{Op: "cuMemAllocAsync", Code: 2, Name: "CUDA_ERROR_OUT_OF_MEMORY", Text: "out of memory"},
			"driver error: cuMemAllocAsync: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory"},
		{&core.DriverError{Op: "cuEventRecord", Code: 700, Name: "CUDA_ERROR_ILLEGAL_ADDRESS", Text: "illegal address", Detail: "the stream was synchronised instead"},
			"driver error: cuEventRecord: CUDA_ERROR_ILLEGAL_ADDRESS (700): illegal address; the stream was synchronised instead"},
		{&core.StreamMisuseError{Op: "FinishUse", Reason: "the ticket is empty"}, "stream misuse: FinishUse: the ticket is empty"},
		{&core.StreamMisuseError{Op: "PrepareUse", Reason: "conflict", Block: id, Stream: 2, Holder: &core.UseRecord{Launch: "sort", Stream: 1, Access: core.Write}},
			`stream misuse: PrepareUse: conflict (block 0x100#5@0, stream 2) (held by launch "sort" on stream 1 for write)`},
		{refuse.Unsupported("Reserve", "direct(sim:0)", "add a budget"), "stream misuse: Reserve: Reserve unsupported by direct(sim:0): add a budget"},
		{&core.UseAfterFreeError{Op: "Deallocate", Generation: 5, State: core.Freed}, "use after free: Deallocate: generation #5 is freed"},
		{&core.UseAfterFreeError{Op: "PrepareUse", Generation: 5, State: core.Retired, Tag: "sort"}, `use after free: PrepareUse: generation #5 is retired (tag "sort")`},
		{&core.OutOfBoundsError{Op: "Deallocate", Generation: 5, Offset: -8}, `out of bounds: Deallocate: generation #5 (tag "untagged") was overwritten at offset -8`},
		{&core.InvalidRequestError{Op: "Allocate", Field: "Bytes", Reason: "zero"}, "invalid request: Allocate: Bytes: zero"},
	} {
		mustBe(t, fmt.Sprintf("text of %T", c.err), c.err.Error(), c.want)
	}
}

func TestNotEnqueuedMarksAnError(t *testing.T) {
	marked := fmt.Errorf("launch: %w", core.NotEnqueued(io.EOF))
	mustBe(t, "mark", core.WasNotEnqueued(marked), true)
	mustBe(t, "mark of a plain error", core.WasNotEnqueued(io.EOF), false)
	mustBe(t, "mark of nil", core.WasNotEnqueued(nil), false)
	mustBe(t, "text", marked.Error(), "launch: EOF")
	mustBe(t, "what is marked", errors.Is(marked, io.EOF), true)
	if err := core.NotEnqueued(nil); err != nil {
		t.Errorf("marking nil made %v", err)
	}
}

func TestUnsupportedAnswers(t *testing.T) {
	u := core.Unsupported{Resource: "direct(sim:0)"}
	_, prepare := u.PrepareUse(t.Context(), core.UseRequest{})
	_, reserve := u.Reserve(t.Context(), 1, "")
	for op, err := range map[string]error{
		"PrepareUse": prepare, "Reserve": reserve,
		"FinishUse":    u.FinishUse(t.Context(), core.Ticket{}),
		"AbortUse":     u.AbortUse(t.Context(), core.Ticket{}),
		"RecordUse":    u.RecordUse(t.Context(), core.BlockID{}, 1),
		"ReleaseClaim": u.ReleaseClaim(t.Context(), 1),
	} {
		misuse(t, op, err, op+" unsupported by direct(sim:0)")
		mustBe(t, op+" is errors.ErrUnsupported", errors.Is(err, errors.ErrUnsupported), true)
	}
}
