package core

import (
	"context"
	"errors"
)

// Launch fences one launch: it prepares the uses on stream, calls launch to
// enqueue the work there, and finishes the uses. A conflicting open intent on
// another stream is waited for until ctx ends; there is no queue, so a writer
// among readers that never pause may wait until then. launch gets a context that
// carries the launch's span; it must enqueue on stream and nowhere else.
//
// An error or panic of launch finishes the uses as if the work had been
// enqueued, because some of it may have been; only an error marked with
// [NotEnqueued] aborts. The error of launch is returned, joined with that of
// ending the uses. With a reused slice of uses it allocates nothing.
func (r *Runtime) Launch(ctx context.Context, stream StreamID, uses []Use, launch func(context.Context) error) error {
	return r.launch(ctx, &UseRequest{Stream: stream, Uses: uses, Wait: true}, launch)
}

// LaunchNamed is Launch with a name for traces, logs and findings. The name
// should come from a small fixed set, such as the kernel's name.
func (r *Runtime) LaunchNamed(ctx context.Context, name string, stream StreamID, uses []Use, launch func(context.Context) error) error {
	return r.launch(ctx, &UseRequest{Stream: stream, Launch: name, Uses: uses, Wait: true}, launch)
}

// LaunchWith is Launch with all that a request can say, such as the pointers
// that a kernel is given. It waits for a conflicting intent in any case.
func (r *Runtime) LaunchWith(ctx context.Context, req UseRequest, launch func(context.Context) error) error {
	req.Wait = true
	return r.launch(ctx, &req, launch)
}

// launch takes the request by pointer, because it is long and a copy of it for each function on the
// way takes a tenth of a launch.
func (r *Runtime) launch(ctx context.Context, req *UseRequest, launch func(context.Context) error) error {
	t, err := r.prepareUse(ctx, req)
	if err != nil {
		return err
	}
	if launch == nil {
		return errors.Join(missing("Launch", "launch", "give a function that enqueues the work on the stream"), r.AbortUse(ctx, t))
	}
	return r.run(ctx, t, launch)
}

func (r *Runtime) run(ctx context.Context, t Ticket, launch func(context.Context) error) error {
	returned := false
	defer func() {
		if !returned { // a panic goes on to the caller, over fenced blocks
			_ = r.FinishUse(ctx, t)
		}
	}()
	err := r.observe("Launch", launch(t.Context(ctx)))
	returned = true
	if err == nil {
		return r.FinishUse(ctx, t)
	}
	if WasNotEnqueued(err) {
		return errors.Join(err, r.AbortUse(ctx, t))
	}
	return errors.Join(err, r.FinishUse(ctx, t))
}
