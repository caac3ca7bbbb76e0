package cuda_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
)

func capacity(n int) func(*teststack.Config) { return func(c *teststack.Config) { c.Streams = n } }

func misuse(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, core.ErrStreamMisuse) {
		t.Errorf("%s: got %v, want a stream misuse", what, err)
	}
}

func TestLeasesAreExclusiveAndTheirIDsNeverReused(t *testing.T) {
	b := newBench(t, capacity(4))
	seen := map[core.StreamID]bool{core.DefaultStream: true}
	for range 50 {
		handles := map[driver.Stream]bool{0: true}
		var held []*cuda.Lease
		for range 4 {
			l, err := b.Streams.Acquire(ctx, "test")
			must(t, err)
			if seen[l.ID()] || handles[l.Handle()] {
				t.Fatalf("lease %v of handle %v was given out before", l.ID(), l.Handle())
			}
			seen[l.ID()], handles[l.Handle()] = true, true
			held = append(held, l)
		}
		for _, l := range held {
			must(t, l.Release())
		}
	}
	equal(t, "streams made", b.faults.Calls(drivertest.StreamCreate), 4)
}

func TestSecondReleaseIsRefusedAndHarmsNobody(t *testing.T) {
	b := newBench(t, capacity(1))
	first, err := b.Streams.Acquire(ctx, "first")
	must(t, err)
	must(t, first.Release())
	second := b.Lease(t, "second") // of the same stream
	misuse(t, "second release", first.Release())
	equal(t, "leased", b.Streams.Stats().Leased, 1)
	if _, err := b.Streams.TryAcquire(ctx, "third"); !errors.Is(err, cuda.ErrNoStream) {
		t.Errorf("the stale release freed the stream of %v: %v", second.ID(), err)
	}
}

func TestReleasedLeaseIsRefusedButItsBlocksCanBeFreed(t *testing.T) {
	b := newBench(t)
	l, err := b.Streams.Acquire(ctx, "gone")
	must(t, err)
	block := b.alloc(l, 256)
	must(t, l.Release())
	next := b.Lease(t, "next")
	_, err = b.Runtime.PrepareBlockUse(ctx, block.ID, l.ID(), core.Read)
	misuse(t, "launch", err)
	_, err = b.Runtime.Allocate(ctx, core.Request{Bytes: 1, Stream: l.ID()})
	misuse(t, "allocation", err)
	misuse(t, "recorded use", b.Runtime.RecordBlockUse(ctx, block.ID, l.ID()))
	_, err = b.Streams.Handle(l.ID())
	misuse(t, "handle", err)
	misuse(t, "synchronise", b.Streams.Synchronize(ctx, l.ID()))
	b.launch(next, writes(block))
	b.free(block)
}

func TestFullPoolSaysWhoHoldsTheStreams(t *testing.T) {
	b := newBench(t, capacity(2))
	b.Lease(t, "nightly-index")
	time.Sleep(2 * time.Millisecond)
	b.Lease(t, "query")
	_, err := b.Streams.Acquire(canceledWhen(t, func() bool { return b.Streams.Stats().Waiting == 1 }), "late")
	if !errors.Is(err, cuda.ErrNoStream) || !errors.Is(err, context.Canceled) ||
		!strings.Contains(err.Error(), `"nightly-index"`) {
		t.Errorf("Acquire: %v", err)
	}
	_, err = b.Streams.TryAcquire(ctx, "late")
	if !errors.Is(err, cuda.ErrNoStream) || !strings.Contains(err.Error(), "2 of 2 are leased") {
		t.Errorf("TryAcquire: %v", err)
	}
	st := b.Streams.Stats()
	equal(t, "refused", st.Refused, 2)
	equal(t, "oldest", st.OldestTag, "nightly-index")
	equal(t, "waiting", st.Waiting, 0)
}

// A stream may come back as the wait for it ends. The error tells of the moment that it is about.
func TestTheEndOfAWaitSaysThatAllStreamsWereLeased(t *testing.T) {
	b := newBench(t, capacity(1))
	told := 0
	for range 200 {
		held, err := b.Streams.Acquire(ctx, "holder")
		must(t, err)
		ending, cancel := context.WithCancel(ctx)
		released := make(chan error)
		go func() {
			for b.Streams.Stats().Waiting == 0 {
				runtime.Gosched()
			}
			cancel()
			released <- held.Release()
		}()
		late, err := b.Streams.Acquire(ending, "late")
		must(t, <-released)
		switch {
		case err == nil:
			must(t, late.Release())
		case !errors.Is(err, cuda.ErrNoStream),
			strings.Contains(err.Error(), "0 of 1") && !strings.Contains(err.Error(), "all 1 were leased"):
			t.Fatalf("all streams were leased, and the error says: %v", err)
		default:
			told++
		}
	}
	if told == 0 {
		t.Error("no wait ended without a stream: the test shows nothing")
	}
}

// canceledWhen is a context that ends when something holds.
func canceledWhen(t *testing.T, holds func() bool) context.Context {
	t.Helper()
	ending, cancel := context.WithCancel(ctx)
	t.Cleanup(cancel)
	go func() {
		defer cancel()
		for ending.Err() == nil && !holds() {
			time.Sleep(100 * time.Microsecond)
		}
	}()
	return ending
}

// The end of a context is no want of streams, if none was asked for, or the driver took the time.
func TestOnlyAFullPoolHasNoStream(t *testing.T) {
	for name, full := range map[string]bool{"free streams": false, "no free stream": true} {
		b := newBench(t, capacity(1))
		held := b.Lease(t, "held")
		if !full {
			must(t, held.Release())
		}
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_, err := b.Streams.Acquire(ended, "late")
		if !errors.Is(err, context.Canceled) || errors.Is(err, cuda.ErrNoStream) || strings.Contains(err.Error(), "leased") {
			t.Errorf("%s, and a context that had ended: %v", name, err)
		}
		equal(t, "refused", b.Streams.Stats().Refused, 1)
	}
	making, goOn := make(chan struct{}), make(chan struct{})
	b := newBench(t, capacity(2), func(c *teststack.Config) {
		wrap := c.Wrap
		c.Wrap = func(d driver.Driver) driver.Driver { return slowStreams{wrap(d), making, goOn} }
	})
	got := make(chan error)
	ending, cancel := context.WithCancel(ctx)
	go func() {
		_, err := b.Streams.Acquire(ending, "slow")
		got <- err
	}()
	<-making
	cancel()
	if err := <-got; !errors.Is(err, context.Canceled) || errors.Is(err, cuda.ErrNoStream) {
		t.Errorf("the driver makes a stream: %v", err)
	}
	close(goOn)
}

// slowStreams is a driver that makes a stream once it is told to go on.
type slowStreams struct {
	driver.Driver
	making chan<- struct{}
	goOn   <-chan struct{}
}

func (d slowStreams) StreamCreate() (driver.Stream, error) {
	select {
	case d.making <- struct{}{}:
		<-d.goOn
	case <-d.goOn:
	}
	return d.Driver.StreamCreate()
}

// A refusal tells of the moment in which all were leased, whatever came back since.
func TestARefusalCountsWhatWasLeasedThen(t *testing.T) {
	b := newBench(t, capacity(2))
	var users sync.WaitGroup
	for range 4 {
		users.Go(func() {
			for range 2000 {
				l, err := b.Streams.TryAcquire(ctx, "user")
				if err == nil {
					must(t, l.Release())
				} else if !strings.Contains(err.Error(), ": 2 of 2 are leased") || !strings.Contains(err.Error(), "raise Config.Streams") {
					t.Error(err)
					return
				}
			}
		})
	}
	users.Wait()
}

func TestAcquireWaitsForARelease(t *testing.T) {
	b := newBench(t, capacity(1))
	held, err := b.Streams.Acquire(ctx, "first")
	must(t, err)
	got := make(chan *cuda.Lease)
	go func() {
		l, _ := b.Streams.Acquire(ctx, "second")
		got <- l
	}()
	for b.Streams.Stats().Waiting == 0 {
		time.Sleep(time.Millisecond)
	}
	must(t, held.Release())
	second := <-got
	must(t, second.Release())
	st := b.Streams.Stats()
	equal(t, "acquires", st.Acquires, 2)
	equal(t, "streams", st.Total, 1)
	if st.WaitTime <= 0 {
		t.Error("the wait was not counted")
	}
}

func TestTryAcquireNeverWaitsForALease(t *testing.T) {
	for range 20 {
		b := newBench(t, capacity(2))
		var granted, refused atomic.Int64
		var group sync.WaitGroup
		for range 6 {
			group.Go(func() {
				l, err := b.Streams.TryAcquire(ctx, "test")
				switch {
				case err == nil:
					granted.Add(1)
					b.Cleanup(func() { _ = l.Release() })
				case errors.Is(err, cuda.ErrNoStream):
					refused.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		group.Wait() // nobody releases: a caller that waits for a lease hangs here
		equal(t, "granted", granted.Load(), 2)
		equal(t, "refused", refused.Load(), 4)
	}
}

func TestStreamPoolNeedsAtLeastOneStream(t *testing.T) {
	expect.ErrorOf(cuda.NewStreamPool(&drivertest.Null{}, cuda.StreamPoolConfig{Max: -1}))(t, core.ErrInvalidRequest)
	p, err := cuda.NewStreamPool(&drivertest.Null{}, cuda.StreamPoolConfig{})
	must(t, err)
	equal(t, "default capacity", p.Stats().Max, cuda.DefaultMaxStreams)
	must(t, p.Close(ctx))
}

func TestLeasesAreListed(t *testing.T) {
	b := newBench(t)
	l := b.Lease(t, "")
	infos := b.Streams.Leases()
	if len(infos) != 1 || infos[0].ID != l.ID() || infos[0].Tag != names.Untagged || infos[0].Adopted || len(infos[0].Stack.Lines()) == 0 {
		t.Errorf("leases: %+v", infos)
	}
	if lines := infos[0].Stack.Lines(); !strings.Contains(lines[0], "teststack") {
		t.Errorf("the stack starts at %s, want the caller of Acquire", lines[0])
	}
}

func TestCloseReportsWhereLeasesWereAcquired(t *testing.T) {
	p, err := cuda.NewStreamPool(&drivertest.Null{}, cuda.StreamPoolConfig{})
	must(t, err)
	l, err := p.Acquire(ctx, "forgotten")
	must(t, err)
	bounded, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
	defer cancel()
	err = p.Close(bounded)
	if err == nil || !strings.Contains(err.Error(), `"forgotten"`) || !strings.Contains(err.Error(), "streampool_test.go") {
		t.Errorf("got %v, want where the lease was acquired", err)
	}
	expect.ErrorOf(p.Acquire(ctx, "late"))(t, core.ErrClosed, "Acquire of a closed pool")
	expect.ErrorOf(p.Adopt(77, "late"))(t, core.ErrClosed, "Adopt of a closed pool")
	must(t, l.Release())
	must(t, p.Close(ctx))
	must(t, p.Close(ctx))
}

func TestFailedStreamIsTheCallersErrorOnce(t *testing.T) {
	b := newBench(t)
	b.faults.FailMethod(drivertest.StreamCreate, 1, driver.OutOfMemory)
	expect.ErrorOf(b.Streams.Acquire(ctx, "test"))(t, core.ErrOutOfMemory)
	b.Lease(t, "test")
}

func TestStreamPoolHammer(t *testing.T) {
	b := newBench(t, capacity(4), ticking)
	var users [1 << 10]atomic.Int32
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			for i := range 150 {
				l, err := b.Streams.Acquire(ctx, "hammer")
				if err != nil {
					t.Error(err)
					return
				}
				user := &users[uint64(l.Handle())%(1<<10)]
				if user.Add(1) != 1 {
					t.Error("a stream has two holders")
				}
				block, err := b.Runtime.Allocate(ctx, core.Request{Bytes: 256, Stream: l.ID()})
				if err == nil {
					err = b.kernel.Launch(ctx, b.Runtime, l, grid, declared(writes(block)), mixArgs(uint64(g+i), writes(block))...)
				}
				user.Add(-1)
				err = errors.Join(err, l.Release())
				if err == nil {
					_, err = b.Runtime.Deallocate(ctx, block.ID)
				}
				if err != nil {
					t.Error(err)
					return
				}
				_ = b.Streams.Stats()
			}
		})
	}
	group.Wait()
}
