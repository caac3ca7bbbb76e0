//go:build unix

package main

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

func TestASignalIsTheCauseOfTheEnd(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		ctx, stop := untilSignal()
		must.Do(t, syscall.Kill(syscall.Getpid(), signal))
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Second):
			t.Fatalf("%v ended nothing", signal)
		}
		if s, ok := errors.AsType[signalled](context.Cause(ctx)); !ok || s.Signal != signal ||
			exitStopped(ctx) != 128+int(signal) {
			t.Errorf("%v: %v, exit code %d", signal, context.Cause(ctx), exitStopped(ctx))
		}
		stop()
	}
	ctx, stop := untilSignal()
	stop()
	if exitStopped(ctx) != exitProblem {
		t.Errorf("without a signal: exit code %d", exitStopped(ctx))
	}
}
