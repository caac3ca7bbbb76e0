package logging

import (
	"context"
	"errors"
	"sync"
)

// Sink takes records. All methods are safe for concurrent use.
type Sink interface {
	// Put takes one record. It must not block: what it can't take at once it
	// drops and counts.
	Put(r Record)
	// Flush waits until everything put before the call is written, or ctx
	// ends. It returns the first write error since the last Flush.
	Flush(ctx context.Context) error
	// Close flushes, bounded by ctx, and ends what the sink runs. Records
	// put afterwards are dropped and counted. It may be called again.
	Close(ctx context.Context) error
	// Dropped is the number of records lost so far.
	Dropped() uint64
}

// None returns the sink that discards every record and counts none as lost.
func None() Sink { return none{} }

type none struct{}

func (none) Put(Record)                  {}
func (none) Flush(context.Context) error { return nil }
func (none) Close(context.Context) error { return nil }
func (none) Dropped() uint64             { return 0 }

// Tee returns a sink that feeds all of sinks, in order. Flush and Close go to
// all of them at once, so that one that is stuck does not use up the others'
// time, and return their errors joined. Dropped is the sum.
func Tee(sinks ...Sink) Sink { return join(useful(sinks)) }

// useful leaves out what takes nothing.
func useful(sinks []Sink) []Sink {
	var kept []Sink
	for _, s := range sinks {
		if s != nil && s != None() {
			kept = append(kept, s)
		}
	}
	return kept
}

// join makes one sink of any number, with nothing in between where there is
// nothing to do.
func join(sinks []Sink) Sink {
	switch len(sinks) {
	case 0:
		return None()
	case 1:
		return sinks[0]
	}
	return tee(sinks)
}

type tee []Sink

func (t tee) Put(r Record) {
	for _, s := range t {
		s.Put(r)
	}
}

func (t tee) Flush(ctx context.Context) error {
	return t.atOnce(func(s Sink) error { return s.Flush(ctx) })
}

func (t tee) Close(ctx context.Context) error {
	return t.atOnce(func(s Sink) error { return s.Close(ctx) })
}

func (t tee) Dropped() uint64 {
	var n uint64
	for _, s := range t {
		n += s.Dropped()
	}
	return n
}

func (t tee) atOnce(do func(Sink) error) error {
	errs := make([]error, len(t))
	var wg sync.WaitGroup
	for i, s := range t {
		wg.Go(func() { errs[i] = do(s) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
