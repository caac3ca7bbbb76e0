package sim

import "time"

// mark gives s a new operation that needs nothing done. Behind queued work it
// is passed with the newest entry; on an idle stream, at once. Where timing is
// simulated (seeded, slow stream) it is an entry of its own.
func (d *Device) mark(s *stream) {
	if d.chooser != nil || s.slow.Load() != 0 {
		d.push(s, newOp(opMark, "mark"))
		return
	}
	s.pass()
}

// pass gives s a place of its own behind all that is queued, which it has come to with the
// last of that.
func (s *stream) pass() {
	s.seq++
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := s.queue.last(); last != nil {
		last.end = s.seq
		return
	}
	s.done.Store(s.seq)
}

// push queues an operation; the device's lock is held.
func (d *Device) push(s *stream, o *op) {
	s.seq++
	o.stream, o.now = s.handle, s.now()
	o.end = s.seq
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue.push(o)
	if d.chooser != nil {
		d.stalled.Broadcast()
		d.stir()
		return
	}
	if !s.working {
		s.working = true
		d.workers.Add(1)
		go d.serve(s)
	}
}

// serve runs the queue of s until it is empty.
func (d *Device) serve(s *stream) {
	defer d.workers.Done()
	for o := s.begin(); o != nil; o = d.advance(s, o) {
		d.delay(s)
		d.run(o)
		if d.isDead() {
			d.kill()
		}
	}
}

func (d *Device) advance(s *stream, o *op) *op {
	next := s.advance(o)
	d.stir()
	return next
}

// begin returns the entry to run. It stays in the queue while it runs, so that
// the stream is seen to be busy.
func (s *stream) begin() *op {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.first()
}

// advance passes an entry that was run and returns the next; nil ends the
// goroutine's service.
func (s *stream) advance(o *op) *op {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue.pop()
	s.done.Store(o.end)
	if s.waiters > 0 {
		s.moved.Broadcast()
	}
	o.recycle()
	next := s.queue.first()
	s.working = next != nil
	return next
}

// delay is the slow stream's.
func (d *Device) delay(s *stream) {
	pause := time.Duration(s.slow.Load())
	if pause <= 0 {
		return
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-d.dead:
	}
}

// run does what an entry says. Of a dead context nothing is done.
func (d *Device) run(o *op) {
	switch {
	case d.isDead():
	case d.memory.arena.pages.revokes:
		d.runRevocable(o)
	default:
		d.perform(o)
	}
}

func (d *Device) perform(o *op) {
	switch o.kind {
	case opMark:
	case opWait:
		if d.chooser == nil {
			d.await(o.waitFor)
		}
	case opLaunch:
		d.runKernel(o)
	default:
		d.runTransfer(o)
	}
}

// await blocks until a record is done or the context dead.
func (d *Device) await(r record) {
	if r.abroad != nil {
		d.awaitPeer(r)
		return
	}
	if r.gate != nil {
		select {
		case <-r.gate.Done():
		case <-d.dead:
			return
		}
	}
	if r.s != nil {
		r.s.awaitDone(d, r.seq)
	}
}

func (s *stream) awaitDone(d *Device, seq uint64) {
	if s.done.Load() >= seq {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiters++
	for s.done.Load() < seq && !d.isDead() {
		s.moved.Wait()
	}
	s.waiters--
}

func (s *stream) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moved.Broadcast()
}
