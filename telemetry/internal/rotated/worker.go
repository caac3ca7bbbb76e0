package rotated

import (
	"context"
	"slices"
	"sync"

	"github.com/fencepost-gpu/fencepost/internal/deadline"
)

// Worker does jobs one after the other in a goroutine of its own, so that nobody
// else waits for the disk. It is safe for concurrent use.
type Worker struct {
	mu     sync.Mutex
	more   sync.Cond // jobs or closed have changed
	jobs   []func()
	closed bool
	ended  chan struct{}
}

// NewWorker starts a worker, which must be closed.
func NewWorker() *Worker {
	w := &Worker{ended: make(chan struct{})}
	w.more.L = &w.mu
	go w.run()
	return w
}

// Do queues a job behind the others, unless the worker is closed or limit jobs
// wait already; it reports whether it did. It does not block.
func (w *Worker) Do(job func(), limit int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.jobs) >= limit {
		return false
	}
	return w.add(len(w.jobs), job)
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
	w.more.Signal()
	return true
}

// Close takes no more jobs, and waits until those that are queued are done or ctx
// ends, which it returns the error of; then they are done all the same. It may be
// called again.
func (w *Worker) Close(ctx context.Context) error {
	w.mu.Lock()
	w.closed = true
	w.more.Signal()
	w.mu.Unlock()
	return deadline.Await(ctx, w.ended)
}

func (w *Worker) run() {
	defer close(w.ended)
	for {
		job := w.next()
		if job == nil {
			return
		}
		job()
	}
}

// next waits for a job; there is none when the worker is closed and all are done.
func (w *Worker) next() func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.jobs) == 0 {
		if w.closed {
			return nil
		}
		w.jobs = nil // gives back what a storm took
		w.more.Wait()
	}
	job := w.jobs[0]
	w.jobs[0] = nil
	w.jobs = w.jobs[1:]
	return job
}
