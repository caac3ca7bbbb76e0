package guardcost

import (
	"context"
	"errors"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/cuda"
)

// pulse is the time between two pieces of work on the device.
const pulse = 5 * time.Millisecond

// atWork is other work while the device has something to do now and then, on a
// stream of its own. A driver whose device has done nothing for a while answers
// calls for memory faster: on an H200 an allocation took 2.2 us then, and 3.5 us
// beside a memset of 4 KiB every 5 ms, whatever the guard did. A program that
// allocates has work for the device, so a guard that brings the first is not to
// be charged for that.
type atWork struct {
	Work
	lease *cuda.Lease
	bytes *cuda.Slice[byte]
}

func newAtWork(ctx context.Context, rt *fencepost.Runtime, w Work) (*atWork, error) {
	lease, err := rt.Streams().Acquire(ctx, "at work")
	if err != nil {
		return nil, err
	}
	bytes, err := cuda.Alloc[byte](ctx, rt.Memory(), 4<<10, cuda.AllocOptions{Stream: lease.ID(), Tag: "at work"})
	if err != nil {
		return nil, errors.Join(err, lease.Release())
	}
	return &atWork{w, lease, bytes}, nil
}

func (a *atWork) Name() string { return a.Work.Name() + ", the device at work" }

func (a *atWork) Run(ctx context.Context, n int) error {
	over, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- a.beat(ctx, over) }()
	err := a.Work.Run(ctx, n)
	close(over)
	return errors.Join(err, <-ended)
}

// beat gives the device something to do at once, and then from time to time.
func (a *atWork) beat(ctx context.Context, over <-chan struct{}) error {
	ticker := time.NewTicker(pulse)
	defer ticker.Stop()
	for {
		if err := cuda.Memset(ctx, a.bytes, a.lease.ID(), 1); err != nil {
			return err
		}
		select {
		case <-over:
			return nil
		case <-ticker.C:
		}
	}
}

// Close gives back what the device worked in.
func (a *atWork) Close(ctx context.Context) error {
	return errors.Join(a.bytes.Free(ctx), a.lease.Release())
}
