package rotated

import (
	"context"
	"slices"
	"sync"

	"github.com/fencepost-gpu/fencepost/internal/deadline"
	"github.com/fencepost-gpu/fencepost/internal/usercode"
)

// Worker does jobs one after the other in a goroutine of its own, which is there while
// there are jobs: the caller never waits for the disk. It is safe for concurrent use,
// and the zero Worker is ready.
type Worker struct {
	mu     sync.Mutex
	jobs   []func()
	closed bool
	idle   chan struct{} // nil if no goroutine runs, and closed when the one that does has no more jobs
}

// Do queues a job behind the others, unless the worker is closed or limit jobs
// wait already; it reports whether it did. It does not block.
func (w *Worker) Do(job func(), limit int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.jobs) < limit && w.add(len(w.jobs), job)
}

// DoFirst queues a job before all others, unless the worker is closed.
func (w *Worker) DoFirst(job func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.add(0, job)
}

func (w *Worker) add(at int, job func()) bool {
	if w.closed {
		return false
	}
	w.jobs = slices.Insert(w.jobs, at, job)
	if w.idle == nil {
		idle := make(chan struct{})
		w.idle = idle
		usercode.Go("what is told of a file", w.run, func() { close(idle) })
	}
	return true
}

// run does the jobs. A job that calls the program's code may end the goroutine: then another goes
// on with the next.
func (w *Worker) run() {
	for {
		w.mu.Lock()
		if len(w.jobs) == 0 {
			w.jobs, w.idle = nil, nil // gives back what a storm took
			w.mu.Unlock()
			return
		}
		job := w.jobs[0]
		w.jobs[0] = nil
		w.jobs = w.jobs[1:]
		w.mu.Unlock()
		job()
	}
}

// Close takes no more jobs, and waits until those that are queued are done or ctx
// ends, which it returns the error of; then they are done all the same. It may be
// called again.
func (w *Worker) Close(ctx context.Context) error {
	w.mu.Lock()
	w.closed = true
	idle := w.idle
	w.mu.Unlock()
	if idle == nil {
		return nil
	}
	return deadline.Await(ctx, idle)
}
