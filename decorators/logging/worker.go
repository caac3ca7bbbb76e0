package logging

import "time"

// chunk is how many records are written at once. Between chunks the worker
// looks whether it should give up.
const chunk = 256

// run is the sink's goroutine. It sleeps while nothing is queued. The first
// record starts the delay; when it ends, or the queue is half full, a round
// is written, and rounds go on until nothing waits.
func (s *AsyncSink) run() {
	defer close(s.done)
	s.write(nil)
	delay := time.NewTimer(s.config.Delay)
	defer delay.Stop()
	for {
		select {
		case <-s.wake:
			delay.Reset(s.config.Delay)
		case <-s.urgent:
			s.round()
			delay.Reset(s.config.Delay)
		case <-delay.C:
			s.round()
			if !s.order.empty() {
				delay.Reset(s.config.Delay)
			}
		case reply := <-s.flushes:
			s.writeRest()
			reply <- s.report()
		case <-s.stop:
			s.writeRest()
			s.result = s.report()
			return
		}
	}
}

// round writes what is due.
func (s *AsyncSink) round() { s.writeAll(s.order.round(s.queue)) }

// writeRest writes everything.
func (s *AsyncSink) writeRest() { s.writeAll(s.order.rest(s.queue)) }

func (s *AsyncSink) writeAll(due []Record) {
	n := len(due)
	for len(due) > 0 {
		if s.abandoned.Load() {
			s.dropped.Add(uint64(len(due)))
			break
		}
		next := due[:min(chunk, len(due))]
		s.write(next)
		due = due[len(next):]
	}
	s.order.drop(n)
}

// write writes one chunk and accounts for what did not get through.
func (s *AsyncSink) write(records []Record) {
	written, err := s.output.write(records)
	s.dropped.Add(uint64(len(records) - written))
	if err == nil {
		return
	}
	if s.failures.Add(1) == 1 {
		s.config.OnError(err)
	}
	if s.unreported == nil {
		s.unreported = err
	}
}

// report returns the error that no Flush has returned yet.
func (s *AsyncSink) report() error {
	err := s.unreported
	s.unreported = nil
	return err
}
