package gputest

import (
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
)

// pinnedBuffer is page-locked memory that the test's end gives back.
func (b *bench) pinnedBuffer(n int) *cuda.HostBuffer[uint64] {
	b.Helper()
	buffer, err := cuda.AllocHost[uint64](b.Memory(), n)
	must(b, err)
	b.Cleanup(func() { must(b, buffer.Free(ctx)) })
	return buffer
}

// Copies go both ways at once, each on a stream of its own, over delays.
func TestPinnedCopiesBothWaysKeepTheirValues(t *testing.T) {
	b, _ := delayedBench(t, 1)
	s := b.leases(3)
	n := scaled(1<<18, 1<<10)
	type trip struct {
		up, down *cuda.HostBuffer[uint64]
		value    uint64
	}
	var trips []trip
	for i := range uint64(scaled(16, 4)) {
		trips = append(trips, trip{b.pinnedBuffer(n), b.pinnedBuffer(n), i << 32})
	}
	for _, p := range trips {
		for i := range p.up.Values() {
			p.up.Values()[i] = p.value + uint64(i)
		}
		from, to := b.alloc(s[0], n, "from"), b.alloc(s[2], n, "to")
		must(t, cuda.CopyToDevice(ctx, from, s[0].ID(), p.up.Values()))
		must(t, b.doCopy(s[1], to, from, 7))
		must(t, cuda.CopyToHost(ctx, p.down.Values(), to, s[2].ID()))
		b.give([]*words{from, to})
	}
	must(t, b.Drain(ctx)) // the frees are behind the copies
	for _, p := range trips {
		for i, got := range p.down.Values() {
			if want := p.value + uint64(i) + 7; got != want {
				t.Fatalf("value %d of trip %d came back as %d, want %d", i, p.value>>32, got, want)
			}
		}
	}
}

// Memory of Go's own goes through the driver's staging.
func TestUnpinnedCopiesBothWaysKeepTheirValues(t *testing.T) {
	b, _ := delayedBench(t, 2)
	s := b.leases(2)
	for _, n := range []int{1, 1000, 8 << 10, 1 << 15} { // below and beyond what is staged at once
		up, down := make([]uint64, n), make([]uint64, n)
		for i := range up {
			up[i] = uint64(i) * 3
		}
		w := b.alloc(s[0], n, "unpinned")
		must(t, cuda.CopyToDevice(ctx, w, s[0].ID(), up))
		must(t, cuda.CopyToHost(ctx, down, w, s[1].ID()))
		must(t, b.Streams().Synchronize(ctx, s[1].ID()))
		must(t, w.Free(ctx))
		for i, got := range down {
			if got != up[i] {
				t.Fatalf("value %d of %d came back as %d, want %d", i, n, got, up[i])
			}
		}
	}
}

// A buffer that a stalled copy reads is not given back to the driver early.
func TestAHostBufferOutlivesItsCopy(t *testing.T) {
	b := newBench(t, fencepost.Config{Guard: "off"})
	s := b.lease("s")
	w := b.alloc(s, 1000, "copied")
	buffer, err := cuda.AllocHost[uint64](b.Memory(), 1000)
	must(t, err)
	for i := range buffer.Values() {
		buffer.Values()[i] = 9
	}
	release, err := b.hw.hold(s.Handle())
	must(t, err)
	t.Cleanup(release)
	must(t, cuda.CopyToDevice(ctx, w, s.ID(), buffer.Values()))
	freed := make(chan error, 1)
	go func() { freed <- buffer.Free(ctx) }()
	release()
	must(t, <-freed)
	for i, got := range b.read(s, w) {
		if got != 9 {
			t.Fatalf("word %d is %d", i, got)
		}
	}
	must(t, w.Free(ctx))
}

// A stream that somebody else made is fenced like one of the pool, and its
// blocks outlive it.
func TestExternalStreamsAreFenced(t *testing.T) {
	b, _ := delayedBench(t, 3)
	ours := b.lease("ours")
	sum, err := b.counter(ours)
	must(t, err)
	var left []*words
	for round := range uint64(scaled(50, 5)) {
		handle, err := b.Driver().StreamCreate()
		must(t, err)
		theirs, err := b.Streams().Adopt(handle, "theirs")
		must(t, err)
		w, v := b.alloc(theirs, 5000, "theirs"), b.alloc(ours, 5000, "ours")
		must(t, b.doWrite(theirs, w, round))
		must(t, b.doCopy(ours, v, w, 1))
		must(t, b.doWrite(theirs, w, 0))
		must(t, b.doCopy(theirs, w, v, 1))
		must(t, b.doCheck(ours, w, round+2, sum))
		must(t, theirs.Release())
		must(t, b.Driver().StreamDestroy(handle))
		must(t, b.doCheck(ours, v, round+1, sum))
		must(t, v.Free(ctx))
		left = append(left, w)
	}
	b.right(ours, sum)
	b.give(left)
	must(t, b.Drain(ctx))
	if st := b.Streams().Stats(); st.Adopted != 0 || st.Leased != 1 {
		t.Errorf("%d adopted, %d leased", st.Adopted, st.Leased)
	}
	if s := b.Stats(); s.Outstanding() != (core.Amount{}) {
		t.Errorf("%+v is outstanding", s.Outstanding())
	}
}
