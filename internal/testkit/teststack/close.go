package teststack

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost-gpu/fencepost/cuda/sim"
)

// Close ends the stack and returns everything that is wrong: errors, what was
// not given back, and what the oracle found.
func (s *Stack) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var errs []error
	check := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("closing %s: %w", what, err))
		}
	}
	undated, end := context.WithCancel(context.Background()) // with a deadline it would wait for what a test leaves
	defer end()
	defer context.AfterFunc(ctx, end)()
	left, err := s.Runtime.Close(undated)
	check("the runtime", err)
	if len(left.Leaks) > 0 || left.OpenIntents > 0 {
		errs = append(errs, fmt.Errorf("left over: %d blocks, %d open intents", len(left.Leaks), left.OpenIntents))
	}
	if s.Sim == nil {
		errs = append(errs, s.emptyPool())
	}
	check("the backend", s.Backend.Close(ctx))
	check("the streams", s.Streams.Close(ctx))
	if s.Sim != nil {
		errs = append(errs, s.judgeSim())
	}
	return errors.Join(errs...)
}

// emptyPool asks the driver's own books, where there is no oracle to ask.
func (s *Stack) emptyPool() error {
	pool, err := s.Backend.PoolStats()
	if err == nil && pool.Used != 0 {
		err = fmt.Errorf("%d bytes of the driver's pool are still allocated", pool.Used)
	}
	return err
}

func (s *Stack) judgeSim() error {
	var errs []error
	books := s.Sim.Books()
	if err := s.Sim.Close(); err != nil {
		errs = append(errs, fmt.Errorf("closing the device: %w", err))
	}
	if want := (sim.Books{Modules: books.Modules, Reserved: books.Reserved}); books != want {
		errs = append(errs, fmt.Errorf("the device still holds %+v", books))
	}
	for _, f := range s.Sim.Findings() {
		errs = append(errs, fmt.Errorf("the oracle: %v", f))
	}
	return errors.Join(errs...)
}
