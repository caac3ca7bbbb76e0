package fencepost

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/deadline"
)

// Close ends the runtime. It refuses further work, waits for the device to
// pass what is queued until ctx ends (or Config.CloseTimeout, if ctx has no
// deadline), reports what was never given back, with tags and stacks, and
// closes the device. Leases that are still out are named in the error. When
// ctx ends first, Close takes a quarter of a second more to give up, up to a second
// for each step whose call of the driver does not return, and a quarter to write
// incidents, and for a Config.OnHealth that does not return. A second Close
// returns what the first did. From then on every method that would call the
// device is refused with an error that matches [core.ErrClosed], however Close
// ended.
func (r *Runtime) Close(ctx context.Context) (core.Leftover, error) {
	if r == nil {
		return core.Leftover{}, r.refuseClosed("Close")
	}
	r.closing.Do(func() { r.close(ctx) })
	return r.leftover, r.closeError
}

func (r *Runtime) close(ctx context.Context) {
	if _, bounded := ctx.Deadline(); !bounded {
		limited, cancel := context.WithTimeout(ctx, r.timeout)
		defer cancel()
		ctx = limited
	}
	r.closed.Store(true)
	var err error
	r.leftover, err = r.Runtime.Close(ctx)
	r.closeError = r.withoutEchoes(errors.Join(err, r.giveUp(ctx)))
	forgetDevice(r)
}

// refuseClosed is the error of what calls the device from when Close begins.
func (r *Runtime) refuseClosed(op string) error {
	if r == nil {
		return core.Missing(op, "runtime", "open one, and look at the error of Open")
	}
	if r.closed.Load() {
		return fmt.Errorf("%s refused: the runtime is %w", op, core.ErrClosed)
	}
	return nil
}

// Drain blocks until every queued free is passed, or ctx ends. It is refused
// once Close has begun, which drains by itself.
func (r *Runtime) Drain(ctx context.Context) error {
	if err := r.refuseClosed("Drain"); err != nil {
		return err
	}
	return r.Runtime.Drain(ctx)
}

// ReapPending releases the frees that the device has passed; it never blocks. It
// is refused once Close has begun.
func (r *Runtime) ReapPending(ctx context.Context) error {
	if err := r.refuseClosed("ReapPending"); err != nil {
		return err
	}
	return r.Runtime.ReapPending(ctx)
}

// giveUp undoes Open's steps while ctx lasts, and for a moment in any case.
func (r *Runtime) giveUp(ctx context.Context) error {
	if end, _ := ctx.Deadline(); ctx.Err() != nil || time.Until(end) < deadline.LastMoment {
		moment, cancel := context.WithTimeout(context.WithoutCancel(ctx), deadline.LastMoment)
		defer cancel()
		return r.unwind(moment)
	}
	return r.unwind(ctx)
}

// withoutEchoes returns err, or nothing but the sticky error itself on a lost
// device, where every step of the end fails in the same way.
func (r *Runtime) withoutEchoes(err error) error {
	if !errors.Is(err, core.ErrSticky) {
		return err
	}
	if first, ok := errors.AsType[*core.DriverError](err); ok {
		r.ReportSticky("Close", first) // if it was lost as late as here
	}
	if lost := r.Health().Err; lost != nil {
		return lost
	}
	return err
}
