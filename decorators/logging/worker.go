package logging

import "time"

// chunk is how many records are written at once. Between chunks the worker
// looks whether it should give up.
const chunk = 256

// worker is the state of a sink's goroutine, which alone touches it.
type worker struct {
	sink  *AsyncSink
	order reorder
	// unreported is the first write error since the last Flush.
	unreported error
}

// run is the sink's goroutine. It sleeps while nothing is queued. The first
// record starts the delay; when it ends, or the queue is half full, a round
// is written, and rounds go on until nothing waits.
func (s *AsyncSink) run() {
	defer close(s.done)
	w := &worker{sink: s}
	w.write(nil)
	delay := time.NewTimer(s.config.Delay)
	defer delay.Stop()
	for {
		select {
		case <-s.wake:
			delay.Reset(s.config.Delay)
		case <-s.urgent:
			w.round()
			delay.Reset(s.config.Delay)
		case <-delay.C:
			w.round()
			if !w.order.empty() {
				delay.Reset(s.config.Delay)
			}
		case reply := <-s.flushes:
			w.flush()
			reply <- w.report()
		case <-s.stop:
			w.flush()
			s.result = w.report()
			return
		}
	}
}

// round writes what is due.
func (w *worker) round() { w.writeAll(w.order.round(w.sink.queue)) }

// flush writes everything.
func (w *worker) flush() { w.writeAll(w.order.rest(w.sink.queue)) }

func (w *worker) writeAll(due []Record) {
	n := len(due)
	for len(due) > 0 {
		if w.sink.abandoned.Load() {
			w.sink.dropped.Add(uint64(len(due)))
			break
		}
		next := due[:min(chunk, len(due))]
		w.write(next)
		due = due[len(next):]
	}
	w.order.drop(n)
}

// write writes one chunk and accounts for what did not get through.
func (w *worker) write(records []Record) {
	written, err := w.sink.output.write(records)
	w.sink.dropped.Add(uint64(len(records) - written))
	if err == nil {
		return
	}
	if w.sink.failures.Add(1) == 1 {
		w.sink.config.OnError(err)
	}
	if w.unreported == nil {
		w.unreported = err
	}
}

// report returns the error that no Flush has returned yet.
func (w *worker) report() error {
	err := w.unreported
	w.unreported = nil
	return err
}
