package cuda_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
)

func TestLaunchesInFlightAreListedUntilTheDeviceHasPassedThem(t *testing.T) {
	b := newBench(t)
	s := b.leases(2)
	one, two := b.alloc(s[0], 256), b.alloc(s[1], 256)
	b.launch(s[0], writes(one))
	b.sync(s[0])
	release := b.hold(s[0])
	b.launch(s[0], writes(one), writes(two))
	newestID := b.launchNamed(s[0], "newest", writes(one))
	flights := b.Async.Inspect().InFlight()
	equal(t, "launches in flight", len(flights), 2)
	if newest, older := flights[0], flights[1]; newest.LaunchID != newestID || newest.Stream != s[0].ID() ||
		newest.Launch != "newest" || older.Launch != "mix" || newest.Tags != [4]core.Tag{"test"} {
		t.Errorf("got %v and %v", newest, older)
	}
	release()
	b.sync(s[0])
	equal(t, "launches in flight", len(b.Async.Inspect().InFlight()), 0)
	b.free(one, two)
}

func TestOnlyTheNewestLaunchesOfAStreamAreKept(t *testing.T) {
	b := newBench(t)
	l := b.leases(1)[0]
	var blocks []core.Block
	for i := range 6 {
		block, err := b.Runtime.Allocate(ctx, core.Request{Bytes: 256, Stream: l.ID(), Tag: core.Tag(fmt.Sprint("tag", i/2*2))})
		must(t, err)
		blocks = append(blocks, block)
	}
	release := b.hold(l)
	for i := range 40 {
		must(t, b.Runtime.LaunchNamed(ctx, fmt.Sprint("launch ", i), l.ID(), declared(reads(blocks...)), func(context.Context) error { return nil }))
	}
	flights := b.Async.Inspect().InFlight()
	equal(t, "launches in flight", len(flights), 32)
	equal(t, "tags", flights[0].Tags, [4]core.Tag{"tag0", "tag2", "tag4"})
	for i := range flights {
		equal(t, "launches, newest first", flights[i].Launch, fmt.Sprint("launch ", 39-i))
	}
	release()
	b.free(blocks...)
}

func TestTheNewestLaunchOfEachStreamComesFirst(t *testing.T) {
	b := newBench(t)
	s := b.leases(2)
	one, two := b.alloc(s[0], 256), b.alloc(s[1], 256)
	releases := []func(){b.hold(s[0]), b.hold(s[1])}
	for range 3 {
		b.launch(s[0], writes(one))
	}
	b.launch(s[1], writes(two))
	flights := b.Async.Inspect().InFlight()
	equal(t, "launches in flight", len(flights), 4)
	equal(t, "streams of the first two", flights[0].Stream != flights[1].Stream, true)
	equal(t, "the rest is the first stream's", [2]core.StreamID{flights[2].Stream, flights[3].Stream}, [2]core.StreamID{s[0].ID(), s[0].ID()})
	for _, release := range releases {
		release()
	}
	b.free(one, two)
}

// launchNamed launches nothing under a name, and returns the launch's number.
func (b *bench) launchNamed(on *cuda.Lease, name string, uses ...[]use) uint64 {
	b.Helper()
	t, err := b.Runtime.PrepareUse(ctx, core.UseRequest{Stream: on.ID(), Launch: name, Uses: declared(join(uses))})
	must(b, err)
	id := t.Intent().ID
	must(b, b.Runtime.FinishUse(ctx, t))
	return id
}
