package cuda

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/deadline"
)

// Close ends the pool: it grants no lease from now on, tells those who wait for
// one, waits for the leases until ctx ends, then for the streams' work, and
// destroys streams and events. With a context that has ended it does all that
// needs no waiting, which on an idle pool is everything. Leases still held are
// reported in the error, with where they were acquired; their streams are
// left alone, and destroyed when they are given back. After an error Close may
// be called again, for what is left. Once
// it has ended, a free of a block that was allocated on one of the streams is
// refused with [core.ErrClosed]: close the resource first.
//
// # How it works
//
// puddle's Close waits for every holder without a bound, and wakes nobody who
// waits for a stream. So it comes last, when puddle has nothing left: the streams
// are taken out of it one by one, idle ones to be destroyed, and leased ones
// so that whoever releases them destroys them. Each that is taken makes room for a
// waiter, who meets a constructor that refuses, which makes room for the next.
func (p *StreamPool) Close(ctx context.Context) error {
	if err := needPool("Close", p); err != nil {
		return err
	}
	p.mu.Lock()
	p.closed.Store(true)
	for _, l := range p.leased {
		if l.resource != nil {
			l.resource.Hijack()
			l.resource = nil
		}
	}
	p.mu.Unlock()
	err := deadline.Poll(ctx, p.emptied)
	if err != nil && p.answersAll() {
		moment, cancel := context.WithTimeout(context.WithoutCancel(ctx), driverMoment)
		defer cancel()
		err = deadline.Poll(moment, p.emptied)
	}
	if err != nil {
		return p.leasedAtClose()
	}
	p.pool.Close()
	return p.destroy(ctx)
}

// answersAll reports whether nothing is left but calls of the driver that take
// no time.
func (p *StreamPool) answersAll() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.leased)+len(p.adoptedHandles)+p.busy == 0
}

// emptied ends the streams that came back, and reports whether none is left.
func (p *StreamPool) emptied() (bool, error) {
	for _, s := range p.takeIdle() {
		p.end(s)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.leased)+len(p.adoptedHandles)+p.ending == 0 && p.pool.Stat().TotalResources() == 0, nil
}

func (p *StreamPool) takeIdle() (idle []*stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, res := range p.pool.AcquireAllIdle() {
		idle = append(idle, res.Value())
		res.Hijack()
		p.ending++
	}
	return idle
}

// end destroys a stream that is counted in p.ending, as soon as its work is done,
// and waits for neither.
func (p *StreamPool) end(s *stream) {
	busy := 0
	if !p.answered(s.Handle()) {
		busy = 1
	}
	p.mu.Lock()
	p.busy += busy
	p.mu.Unlock()
	go func() {
		p.destruct(s)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.ending, p.busy = p.ending-1, p.busy-busy
	}()
}

func (p *StreamPool) leasedAtClose() error {
	var errs []error
	for _, l := range p.Leases() {
		where := cmp.Or(l.Stack.Caller(), "an unknown place")
		errs = append(errs, fmt.Errorf("stream %v (%q) is still leased, since %v by %s", l.ID, l.Tag, l.Since.Format(time.RFC3339), where))
	}
	if len(errs) == 0 {
		return errors.New("closing the stream pool: the device has not done the streams' work in time")
	}
	return errors.Join(append(errs, fmt.Errorf("closing the stream pool: %d leases were not given back in time", len(errs)))...)
}

// answered reports whether to synchronise with a stream takes no time, because
// its work is done or the device is lost.
func (p *StreamPool) answered(h driver.Stream) bool {
	done, err := p.drv.StreamQuery(h)
	return err == nil && done || errors.Is(err, core.ErrSticky) || errors.Is(err, core.ErrClosed)
}

// destroy gives everything back to the driver, and keeps what that refuses and
// what has work left when ctx ends.
func (p *StreamPool) destroy(ctx context.Context) error {
	p.backing.Lock() // nobody is making a backstop
	p.mu.Lock()
	p.destroyed = true
	p.table.shut()
	if p.backstop != nil {
		p.undestroyed = append(p.undestroyed, p.backstop.Handle())
		p.backstop = nil
	}
	handles := p.undestroyed
	p.undestroyed = nil
	p.mu.Unlock()
	p.backing.Unlock()
	errs := []error{p.destroyGraphs()}
	for _, h := range handles {
		errs = append(errs, p.destroyWhenIdle(ctx, h))
	}
	for _, s := range p.table.everyStream() {
		s.Lock()
		s.unpin()
		s.DropFinalEvent()
		errs = append(errs, s.CloseEvents())
		s.Unlock()
	}
	return errors.Join(errs...)
}

// destroyWhenIdle waits for the work of a stream of the pool until ctx ends, and
// destroys the stream.
func (p *StreamPool) destroyWhenIdle(ctx context.Context, h driver.Stream) error {
	if p.answered(h) {
		return errors.Join(p.drv.StreamSynchronize(h), p.destroyStream(h))
	}
	synchronized := make(chan error, 1)
	go func() { synchronized <- p.drv.StreamSynchronize(h) }()
	select {
	case err := <-synchronized:
		return errors.Join(err, p.destroyStream(h))
	case <-ctx.Done():
		p.keepUndestroyed(h)
		return fmt.Errorf("closing the stream pool: the device has not done the work of a stream in time: %w", ctx.Err())
	}
}

// keepUndestroyed leaves a stream to the next Close.
func (p *StreamPool) keepUndestroyed(h driver.Stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.undestroyed = append(p.undestroyed, h)
}

// destroyStream destroys a stream of the pool's, or keeps it for Close.
func (p *StreamPool) destroyStream(h driver.Stream) error {
	err := p.drv.StreamDestroy(h)
	if err != nil {
		p.keepUndestroyed(h)
	}
	return err
}
