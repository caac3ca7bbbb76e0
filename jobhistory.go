package fencepost

import (
	"errors"
	"slices"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/legible"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
	"github.com/fencepost-gpu/fencepost/internal/ring"
)

// jobHistory keeps the newest jobs that have ended.
type jobHistory struct {
	mu   sync.Mutex
	kept ring.Ring[endedJob]
}

// endedJob is what is kept of a job.
type endedJob struct {
	began   monotime.Instant
	name    core.Tag
	stream  core.StreamID
	span    core.SpanRef
	err     error
	account core.JobAccount
}

// event is the record of a copy of the job.
func (j *endedJob) event(ordinal int) oplog.Event {
	a := j.account
	return oplog.Event{Op: oplog.OpJob, Layer: "job", Time: j.began.Time(), Duration: a.Elapsed, Ordinal: ordinal, Stream: j.stream, Tag: j.name.OrUntagged(),
		Requested: a.Requested, Bytes: a.Bytes, Span: j.span, Err: j.err, Job: &a}
}

// mostJobs is how many jobs are kept, at most. One takes a quarter of a KiB.
const mostJobs = 256

// events are the records of what is kept, oldest first.
func (h *jobHistory) events(ordinal int) []oplog.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	var events []oplog.Event
	for j := range h.kept.Newest() {
		events = append(events, j.event(ordinal))
	}
	slices.Reverse(events)
	return events
}

// errAbandoned is what is said of a job whose function did not return.
var errAbandoned = errors.New("the job's function did not return: it panicked, or called runtime.Goexit")

// report tells metrics, traces, the history and the log what the job has needed, and whether its
// function returned. It updates the runtime's own books before it calls the program's code.
func (r *Runtime) report(s *jobState, err error, returned bool) {
	j := endedJob{began: s.began, name: s.tag, span: s.span.Span(), err: err, account: s.account.Read()}
	a := &j.account
	r.learned.learn(s, a, returned && err == nil)
	if !returned {
		j.err = also(err, errAbandoned)
	}
	j.err = legible.Kept(j.err)
	if len(s.streams) > 0 {
		j.stream = s.streams[0].lease.ID()
	}
	defer func() { s.span.End(s.tag, a, j.err) }()
	defer func() {
		r.deviceWork.jobs.Ended(s.tag, a, len(s.streams) > 0, j.span)
		r.jobHistory.keep(&j, min(mostJobs, r.deviceWork.most))
		if r.log.HasSinks() {
			r.log.Tell(j.event(r.Ordinal()))
		}
	}()
	if !j.span.IsZero() && a.TimedLaunches < a.Launches { // the device has done them
		_ = r.core.Resource().ReapPending(s.ctx) // a failure shows in what comes next
		j.account = s.account.Read()
	}
}

func (h *jobHistory) keep(j *endedJob, most int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	place, _ := h.kept.Next(most)
	*place = *j
}

// recordsAround are those that an incident may have: of jobs, and of operations.
func (r *Runtime) recordsAround() logging.Records {
	var records logging.Records
	for _, e := range r.jobHistory.events(r.Ordinal()) {
		records = append(records, logging.Record{Event: e})
	}
	return append(records, r.ring.Snapshot()...)
}
