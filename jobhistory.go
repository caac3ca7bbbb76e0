package fencepost

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/ring"
)

// jobHistory keeps the newest jobs that have ended.
type jobHistory struct {
	mu   sync.Mutex
	kept ring.Ring[endedJob]
}

type endedJob struct {
	event   oplog.Event
	account core.JobAccount
}

// mostJobs is how many jobs are kept, at most. One takes half a KiB.
const mostJobs = 256

// events are the records of what is kept, oldest first.
func (h *jobHistory) events() []oplog.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	var events []oplog.Event
	for j := range h.kept.Newest() {
		e, account := j.event, j.account
		e.Job = &account
		events = append(events, e)
	}
	slices.Reverse(events)
	return events
}

// errAbandoned is what is said of a job whose function did not return.
var errAbandoned = errors.New("the job's function did not return: it panicked, or called runtime.Goexit")

// report tells metrics, traces, the history and the log what the job has needed, and whether its function returned.
func (r *Runtime) report(s *jobState, err error, returned bool) {
	a, span := s.account.Read(), s.span.Span()
	if !span.IsZero() && a.TimedLaunches < a.Launches { // the device has done them
		_ = r.core.Resource().ReapPending(s.ctx) // a failure shows in what comes next
		a = s.account.Read()
	}
	if !returned {
		err = also(err, errAbandoned)
	}
	r.deviceWork.jobs.Ended(s.tag, &a, len(s.streams) > 0, span)
	e := oplog.Event{Op: oplog.OpJob, Layer: "job", Time: time.Now().Add(-a.Elapsed), Duration: a.Elapsed, Ordinal: r.Ordinal(), Tag: s.tag.OrUntagged(),
		Requested: a.Requested, Bytes: a.Bytes, Span: span, Err: err}
	if len(s.streams) > 0 {
		e.Stream = s.streams[0].lease.ID()
	}
	r.keep(e, &a)
	if r.log.HasSinks() {
		logged := a
		e.Job = &logged
		r.log.Tell(e)
	}
	s.span.End(s.tag, &a, err)
}

func (r *Runtime) keep(e oplog.Event, a *core.JobAccount) {
	h := &r.jobHistory
	h.mu.Lock()
	defer h.mu.Unlock()
	place, _ := h.kept.Next(min(mostJobs, r.deviceWork.most))
	place.event, place.account = e, *a
}

// recordsAround are those that an incident may have: of jobs, and of operations.
func (r *Runtime) recordsAround() logging.Records {
	var records logging.Records
	for _, e := range r.jobHistory.events() {
		records = append(records, logging.Record{Event: e})
	}
	return append(records, r.ring.Snapshot()...)
}
