// Package deadline is how the host waits for a device, and what is still done when a
// deadline has passed, or when a call that has none does not return.
package deadline

import (
	"context"
	"fmt"
	"time"
)

// LastMoment is what is left for giving up when a context has ended: enough to
// give back everything that is not held, on a device that answers.
const LastMoment = 250 * time.Millisecond

// Within calls f, which may block in the driver, and waits for it until ctx
// ends and a moment more. A device that does not answer keeps the goroutine.
func Within(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(LastMoment):
		return fmt.Errorf("the device does not answer: %w", ctx.Err())
	}
}

// Await waits until done is closed or ctx ends, whose error it returns. What is done
// by then is done, also if ctx has ended before.
func Await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-done:
		return nil
	default:
		return ctx.Err()
	}
}

// AtLeastAMoment returns end with a context that lasts for a moment even if no
// time is left.
func AtLeastAMoment(end func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if ctx.Err() == nil {
			return end(ctx)
		}
		moment, cancel := context.WithTimeout(context.WithoutCancel(ctx), LastMoment)
		defer cancel()
		return end(moment)
	}
}

// Poll calls done until it is true, fails or ctx ends, less and less often.
func Poll(ctx context.Context, done func() (bool, error)) error {
	pause := 2 * time.Microsecond
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		pause = min(pause*2, time.Millisecond)
	}
}
