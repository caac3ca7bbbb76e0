package runtimes_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/telemetry/spanpipe"
)

// unwinding is a sink that does not return from the next record of an operation.
type unwinding struct {
	logging.Sink
	op    atomic.Value // an oplog.Op
	exits bool
}

func (s *unwinding) Put(r logging.Record) {
	if !s.op.CompareAndSwap(r.Event.Op, oplog.Op(0)) {
		return
	}
	if s.exits {
		runtime.Goexit()
	}
	panic("the sink's bug")
}

// apart runs f on a goroutine of its own, and waits until that has ended, however it did.
func apart(f func()) {
	var group sync.WaitGroup
	group.Go(func() {
		defer func() { _ = recover() }()
		f()
	})
	group.Wait()
}

// A sink that does not return while a job ends costs neither stream nor reservation, nor the job's
// place among those admitted; and Close ends all that it began, and says how it went.
func TestAnEndIsWholeWhereASinkDoesNotReturn(t *testing.T) {
	for _, exits := range []bool{false, true} {
		for _, op := range []oplog.Op{oplog.OpDeallocate, oplog.OpReleaseClaim, oplog.OpJob, oplog.OpDrain} {
			t.Run(fmt.Sprint(op, "/exits ", exits), func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "learned")
				s := &unwinding{Sink: logging.NewRing(8), exits: exits}
				s.op.Store(oplog.Op(0))
				rt := e2e.OpenDirty(t, fencepost.Config{Streams: 2, Guard: fencepost.GuardOff, LogSinks: []logging.Sink{s},
					LearnedFile:  file,
					CloseTimeout: time.Second})
				job := func(name string) error {
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
					defer cancel()
					return rt.Do(ctx, name, func(j *fencepost.Job) error { return e2e.ErrorOf(fencepost.Alloc[byte](j, 1<<20)) },
						fencepost.Admit())
				}
				for range 3 {
					e2e.Succeed(t, "a job", job("known"))
				}
				if op != oplog.OpDrain {
					s.op.Store(op)
					apart(func() { _ = job("known") })
					e2e.Succeed(t, "a job of a new kind", job("new"))
					nothingIsHeld(t, rt)
				}
				s.op.Store(oplog.OpDrain)
				apart(func() { _, _ = rt.Close(t.Context()) })
				if _, err := rt.Close(t.Context()); exits != (err != nil) {
					t.Errorf("the second Close says %v", err)
				}
				if _, err := os.Stat(file); err != nil {
					t.Errorf("the learned file: %v", err)
				}
			})
		}
	}
}

// A job does not end, and takes all the time of Close; the provider's Shutdown, of the same
// context, does nothing then. The spans are exported all the same, the finding of the leak among
// them.
func TestSpansComeOutWhereAJobTakesAllTheTimeOfClose(t *testing.T) {
	exporter := tracetest.NewInMemoryExporter()
	pipe := spanpipe.New(exporter, spanpipe.Config{})
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(pipe))
	rt := e2e.OpenDirty(t, fencepost.Config{TracerProvider: provider})
	inside, release, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		_ = rt.Do(context.Background(), "runaway", func(j *fencepost.Job) error {
			err := e2e.ErrorOf(fencepost.Alloc[byte](j, 1<<20))
			close(inside)
			<-release
			return err
		})
	}()
	<-inside
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, _ = rt.Close(ctx)
	_ = provider.Shutdown(ctx)
	found := false
	for _, s := range exporter.GetSpans() {
		found = found || strings.HasPrefix(s.Name, "gpumem.finding")
	}
	if n := pipe.Counts(); !found || n.Exported != n.Ended {
		t.Errorf("the leak came out: %v; %+v", found, n)
	}
	close(release)
	<-ended
	_ = pipe.Shutdown(t.Context())
}
