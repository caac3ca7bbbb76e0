package cures_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/internal/cures"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
)

// device is a resource whose statistics change when the test says so.
type device struct {
	core.Resource
	freed atomic.Uint64
	reaps atomic.Int64
	fails atomic.Pointer[error]
}

func (d *device) Stats() core.Stats { return core.Stats{Deallocations: d.freed.Load()} }

func (d *device) ReapPending(context.Context) error {
	d.reaps.Add(1)
	if err := d.fails.Load(); err != nil {
		return *err
	}
	return nil
}

func newRoom() (*device, *cures.Room) {
	d, room := &device{Resource: coretest.NewFake(0)}, cures.New()
	room.Join(d, d)
	return d, room
}

// One of those that wait looks at the device, and a change wakes all.
func TestThoseThatWaitShareOneLookAtTheDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, room := newRoom()
		seen := room.Signs()
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				now, err := room.Await(t.Context(), seen, cures.Job, nil)
				if expect.Success(t, err); now == seen {
					t.Error("it was woken for nothing")
				}
			})
		}
		time.Sleep(time.Second) // some 50 looks
		if n := d.reaps.Load(); n < 20 || n > 100 {
			t.Errorf("the device was asked %d times in a second", n)
		}
		d.freed.Add(1)
		all.Wait()
	})
}

// The one that looks may leave: another goes on.
func TestAWaiterThatLeavesHandsItsLooksOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, room := newRoom()
		seen, turn := room.Signs(), make(chan struct{}, 1)
		leaves, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		await := func(ctx context.Context, turn <-chan struct{}, changed bool) {
			all.Go(func() {
				if now, err := room.Await(ctx, seen, cures.Request, turn); err != nil || (now != seen) != changed {
					t.Errorf("%v, changed %v", err, now != seen)
				}
			})
			synctest.Wait()
		}
		await(leaves, nil, false)
		await(t.Context(), turn, false)
		await(t.Context(), nil, true)
		cancel()
		turn <- struct{}{}
		time.Sleep(time.Second)
		d.freed.Add(1)
		all.Wait()
	})
}

func TestAFailedLookEndsTheWait(t *testing.T) {
	d, room := newRoom()
	failure := errors.New("failure")
	d.fails.Store(&failure)
	if _, err := room.Await(t.Context(), room.Signs(), cures.Request, nil); !errors.Is(err, failure) {
		t.Errorf("got %v", err)
	}
}

// Waiters come and go while memory changes: each ends.
func TestWaitersComeAndGo(t *testing.T) {
	d, room := newRoom()
	ctx, cancel := context.WithCancel(t.Context())
	var waiters, changes sync.WaitGroup
	changes.Go(func() {
		for ctx.Err() == nil {
			d.freed.Add(1)
			time.Sleep(50 * time.Microsecond)
		}
	})
	for i := range 16 {
		waiters.Go(func() {
			for range 100 {
				short, done := context.WithTimeout(ctx, time.Duration(i)*20*time.Microsecond)
				_, err := room.Await(short, room.Signs(), cures.Haste(i%2), nil)
				expect.Success(t, err)
				done()
			}
		})
	}
	waiters.Wait()
	cancel()
	changes.Wait()
}
