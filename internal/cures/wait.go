package cures

import (
	"context"
	"errors"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/usercode"
)

// wait is the wait of one request for the device.
type wait struct {
	began   time.Time // zero before it
	patient context.Context
	end     context.CancelFunc
	span    func(error)
	pause   time.Duration // before the request is made again: others may free and take all the time
	pending uint64        // bytes that were on their way when it began
	retries int           // since there was something to wait for
}

// Signs are what changes when something came of a wait.
type Signs struct{ pending, behind, freed, charged, blocked uint64 }

// Signs are those of the memory now.
func (r *Room) Signs() Signs {
	s := r.ask.Stats()
	return Signs{s.Pending.Bytes, s.OwnPool.Behind, s.Deallocations, s.Charged, r.blocked()}
}

// pendingMemory is the memory that is freed and that the device has not passed, if it may make room
// for a request that was refused with err. For a budget it is the Pending of the refusal: lower
// layers may have released that already, and the budget not have heard.
func (r *Room) pendingMemory(err error, now Signs) uint64 {
	if short, ok := errors.AsType[*core.OutOfBudgetError](err); ok {
		if r.pendingSuffices(err) {
			return saturatingSub(short.Pending, r.blocked())
		}
		return 0
	}
	return saturatingSub(now.pending, r.blocked()) + now.behind
}

// waitForDevice waits until something may have come of the frees that the device has yet to pass.
// If there is nothing to wait for, or no time, the request is made once more if the memory has
// changed since before the last try: what was pending may have come back meanwhile. So a refusal
// that stands is younger than a look that found nothing.
func (s *Search) waitForDevice(ctx context.Context, err error) bool {
	r, w := s.room, &s.wait
	e := effortIn(ctx)
	patience := r.setup.Patience - s.want.Waited - e.waited
	if e.impatient || patience <= 0 || ctx.Err() != nil {
		return false
	}
	now := r.Signs()
	bytes := r.pendingMemory(err, now)
	if w.began.IsZero() {
		if bytes == 0 {
			return w.onceMore(s.seen != now)
		}
		s.beginWait(ctx, bytes, patience)
	}
	if bytes > 0 && w.patient.Err() == nil {
		w.retries = 0
	}
	w.sleep()
	switch {
	case w.patient.Err() != nil:
		return ctx.Err() == nil && w.onceMore(s.seen != r.Signs())
	case s.seen != now:
		s.reaped = false
		return true
	case bytes == 0:
		return false
	}
	now, failed := r.Await(w.patient, now, Request, nil)
	if w.patient.Err() != nil {
		return ctx.Err() == nil && w.onceMore(s.seen != now)
	}
	s.reaped = false
	return failed == nil // else the device fails
}

func (s *Search) beginWait(ctx context.Context, bytes uint64, patience time.Duration) {
	w := &s.wait
	s.relieved = true
	w.began, w.pending = time.Now(), bytes
	w.patient, w.end = context.WithTimeout(ctx, patience)
	s.room.waiting.Add(1)
	if begin := s.room.setup.BeginStep; begin != nil {
		usercode.Call(stepCode, func() {
			w.span = begin(ctx, oplog.Step{Stream: s.want.Request.Stream, Memory: true, Bytes: s.want.Request.Bytes})
		})
	}
}

const stepCode = "BeginStep"

// onceMore reports whether the request is made once more although there is nothing to wait for:
// memory has changed since before the try that failed. Others may take it each time.
func (w *wait) onceMore(changed bool) bool {
	if !changed || w.retries == maxLooks {
		return false
	}
	w.sleep()
	w.retries++
	return true
}

// sleep pauses before a try, longer each time.
func (w *wait) sleep() {
	time.Sleep(w.pause)
	w.pause = min(2*w.pause+time.Microsecond, slowestPause)
}

// endWait counts a wait, and tells the account of the request.
func (s *Search) endWait(err error) {
	r, w := s.room, &s.wait
	if w.began.IsZero() || w.end == nil {
		return
	}
	w.end()
	w.end = nil
	took := s.waitedFor().For
	r.waiting.Add(-1)
	r.waits.Add(1)
	if err == nil {
		r.waitsServed.Add(1)
	}
	r.waited.Add(int64(took))
	if account := s.want.Request.Account; account != nil {
		account.Note(func(j *core.JobAccount) { j.WaitedForMemory += took })
	}
	if w.span != nil {
		usercode.Call(stepCode, func() { w.span(err) })
	}
}

// waitedFor is how the request has waited so far.
func (s *Search) waitedFor() core.Wait {
	if s.wait.began.IsZero() {
		return core.Wait{}
	}
	return core.Wait{For: time.Since(s.wait.began), Pending: s.wait.pending}
}

// Haste is how often a waiter has the device looked at.
type Haste int

// The kinds of waiters: a request holds its caller up, a job in line does not mind some
// milliseconds.
const (
	Request Haste = iota
	Job
	hastes
)

// pauses are the first and the longest pause between two looks.
func (h Haste) pauses() (first, longest time.Duration) {
	if h == Job {
		return time.Millisecond, 20 * time.Millisecond
	}
	return 2 * time.Microsecond, time.Millisecond
}

// Await waits until the memory is no more as it was when its signs were so, until turn yields, or
// until ctx ends. It returns the signs by then. One of those that wait looks at the device, less and
// less often, and wakes the others. An error of that look ends the wait.
func (r *Room) Await(ctx context.Context, seen Signs, h Haste, turn <-chan struct{}) (now Signs, err error) {
	pause, longest := h.pauses()
	polls := false
	defer func() {
		if polls {
			r.stopPolling(h)
		}
	}()
	for {
		var changed <-chan struct{}
		if !polls {
			polls, changed = r.poll(h)
		}
		var again <-chan time.Time
		if polls {
			err = r.ask.ReapPending(ctx)
			again = time.After(pause)
			pause = min(2*pause, longest)
		}
		if now = r.Signs(); now != seen || err != nil {
			return now, err
		}
		select {
		case <-ctx.Done():
			return now, nil
		case <-turn:
			return now, nil
		case <-changed:
		case <-again:
		}
	}
}

// poll makes the caller the one that looks at the device, unless another does.
func (r *Room) poll(h Haste) (mine bool, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	mine, r.polling[h] = !r.polling[h], true
	return mine, r.changed
}

// stopPolling wakes the others, one of which looks from now on.
func (r *Room) stopPolling(h Haste) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.polling[h] = false
	close(r.changed)
	r.changed = make(chan struct{})
}
