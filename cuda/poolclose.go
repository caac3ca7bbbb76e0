package cuda

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// Close ends the pool: it waits for the leases until ctx ends, then for the
// streams' work, and destroys streams and events. Leases still held are
// reported in the error, with where they were acquired; their streams are
// left alone. After an error Close may be called again, for what is left. Once
// it has ended, a free of a block that was allocated on one of the streams is
// refused with [core.ErrClosed]: close the resource first.
func (p *StreamPool) Close(ctx context.Context) error {
	p.mu.Lock()
	if !p.closed {
		p.closed, p.emptied = true, make(chan struct{})
		go func() { // puddle's Close waits for every holder, without a bound
			p.pool.Close()
			close(p.emptied)
		}()
	}
	p.mu.Unlock()
	select {
	case <-p.emptied:
	case <-ctx.Done():
		return p.heldAtClose()
	}
	if err := poll(ctx, p.noLease); err != nil { // an adopted stream is held
		return p.heldAtClose()
	}
	return p.destroy()
}

func (p *StreamPool) noLease() (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.leased)+len(p.adopted) == 0, nil
}

func (p *StreamPool) heldAtClose() error {
	var errs []error
	for _, l := range p.Leases() {
		where := "an unknown place"
		if lines := l.Stack.Lines(); len(lines) > 0 {
			where = lines[0]
		}
		errs = append(errs, fmt.Errorf("stream %v (%q) is still leased, since %v by %s", l.ID, l.Tag, l.Since.Format(time.RFC3339), where))
	}
	if len(errs) == 0 {
		return errors.New("closing the stream pool: the device has not done the streams' work in time")
	}
	return errors.Join(append(errs, fmt.Errorf("closing the stream pool: %d leases were not given back in time", len(errs)))...)
}

// destroy gives everything back to the driver, and keeps what that refuses.
func (p *StreamPool) destroy() error {
	p.backing.Lock() // nobody is making a backstop
	p.mu.Lock()
	p.destroyed = true
	if p.backstop != nil {
		p.undestroyed = append(p.undestroyed, p.backstop.handle)
		p.backstop = nil
	}
	handles := p.undestroyed
	p.undestroyed = nil
	p.mu.Unlock()
	p.backing.Unlock()
	errs := []error{p.destroyGraphs()}
	for _, h := range handles {
		errs = append(errs, p.drv.StreamSynchronize(h), p.destroyStream(h))
	}
	for _, s := range p.table.everyStream() {
		s.mu.Lock()
		s.unpin()
		s.letGo()
		s.detach()
		s.mu.Unlock()
		errs = append(errs, s.events.close())
	}
	return errors.Join(errs...)
}

// destroyStream destroys a stream of the pool's, or keeps it for Close.
func (p *StreamPool) destroyStream(h driver.Stream) error {
	err := p.drv.StreamDestroy(h)
	if err != nil {
		p.mu.Lock()
		p.undestroyed = append(p.undestroyed, h)
		p.mu.Unlock()
	}
	return err
}
