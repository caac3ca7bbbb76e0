package gputest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/testkit/testkernels"
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
)

// plants are bugs that a process of its own commits and that somebody else must
// see: compute-sanitizer, or the test that started it.
var plants = map[string]func() int{
	"uaf":     func() int { return forSanitizer(plantUseAfterFree) },
	"oob":     func() int { return forSanitizer(plantOutOfBounds) },
	"illegal": plantIllegal,
	"late":    plantLate,
}

// plant commits one bug and returns the exit code.
func plant(name string) int {
	if spec, ok := strings.CutPrefix(name, "fault:"); ok {
		return plantFault(spec)
	}
	f, ok := plants[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "%s=%s: say uaf, oob, illegal or late\n", plantVariable, name)
		return 2
	}
	return f()
}

// forSanitizer returns 0 if the bug could be planted, whatever became of the
// kernel: a sanitizer that sees it has an exit code of its own.
func forSanitizer(commit func(*hardware, *cuda.Module) error) int {
	h, err := openHardware(0)
	if err != nil {
		fmt.Fprintln(os.Stderr, "planting:", err)
		return 2
	}
	module, err := cuda.LoadModule(h.Driver, testkernels.Image())
	if err == nil {
		err = commit(h, module)
	}
	if err != nil && !errors.Is(err, core.ErrSticky) {
		fmt.Fprintln(os.Stderr, "planting:", err)
		return 2
	}
	fmt.Println("planted; the device then said:", err)
	return 0
}

const plantWords = 1000

// plantOutOfBounds writes behind a block of the direct backend, which is an
// allocation of its own for the driver.
func plantOutOfBounds(h *hardware, m *cuda.Module) error {
	direct := cuda.NewDirectResource(h.Driver)
	b, err := direct.Allocate(ctx, core.Request{Bytes: plantWords * wordBytes, Tag: "planted"})
	if err != nil {
		return err
	}
	err = run(h, m, testkernels.OutOfBounds, core.DefaultStream, 0, driver.Ptr(b.ID.Ptr), driver.U64(plantWords), driver.U64(1))
	_, freeErr := direct.Deallocate(ctx, b.ID)
	return errors.Join(err, freeErr)
}

// plantUseAfterFree writes a block of the stream-ordered backend behind its
// free, on the very stream of the free.
func plantUseAfterFree(h *hardware, m *cuda.Module) error {
	s, err := teststack.New(teststack.Config{Device: h.Driver})
	if err != nil {
		return err
	}
	on, err := s.Streams.Acquire(ctx, "planted")
	if err != nil {
		return err
	}
	b, err := s.Runtime.Allocate(ctx, core.Request{Bytes: plantWords * wordBytes, Stream: on.ID(), Tag: "planted"})
	if err != nil {
		return err
	}
	args := []driver.Arg{driver.Ptr(b.ID.Ptr), driver.U64(plantWords), driver.U64(testkernels.Planted)}
	err = s.Runtime.LaunchNamed(ctx, "honest", on.ID(), []core.Use{{Block: b.ID, Access: core.Write}}, func(context.Context) error {
		return run(h, m, testkernels.Write, on.ID(), on.Handle(), args...)
	})
	_, freeErr := s.Runtime.Deallocate(ctx, b.ID)
	err = errors.Join(err, freeErr, h.StreamSynchronize(on.Handle()))
	if err == nil {
		err = run(h, m, testkernels.Write, on.ID(), on.Handle(), args...)
	}
	return errors.Join(err, on.Release(), s.Close())
}

// run launches a kernel raw and waits for it.
func run(h *hardware, m *cuda.Module, name string, id core.StreamID, on driver.Stream, args ...driver.Arg) error {
	k, err := m.Kernel(name)
	if err == nil {
		err = k.Enqueue(on, grid(plantWords), args...)
	}
	if err == nil {
		err = h.StreamSynchronize(on)
	}
	if err != nil {
		return fmt.Errorf("%s on stream %v: %w", name, id, err)
	}
	return nil
}

// plantLate writes an isolated block behind its free, and returns exitLost if
// the device then says that the address is illegal.
func plantLate() int {
	err := lateAccess()
	var d *core.DriverError
	if errors.As(err, &d) && d.Code == driver.IllegalAddress && d.Sticky {
		fmt.Println("the device said:", err)
		return exitLost
	}
	fmt.Fprintln(os.Stderr, "want an illegal address:", err)
	return 1
}

func lateAccess() error {
	h, err := openHardware(0)
	if err != nil {
		return err
	}
	module, err := cuda.LoadModule(h.Driver, testkernels.Image())
	if err != nil {
		return err
	}
	s, err := teststack.New(teststack.Config{Device: h.Driver})
	if err != nil {
		return err
	}
	on, err := s.Streams.Acquire(ctx, "planted")
	if err != nil {
		return err
	}
	b, err := s.Runtime.Allocate(ctx, core.Request{Bytes: plantWords * wordBytes, Stream: on.ID(), Tag: "planted", Isolated: true})
	if err != nil {
		return err
	}
	args := []driver.Arg{driver.Ptr(b.ID.Ptr), driver.U64(plantWords), driver.U64(testkernels.Planted)}
	err = s.Runtime.LaunchNamed(ctx, "honest", on.ID(), []core.Use{{Block: b.ID, Access: core.Write}}, func(context.Context) error {
		return run(h, module, testkernels.Write, on.ID(), on.Handle(), args...)
	})
	if err != nil {
		return fmt.Errorf("the honest launch: %v", err) // no such error is what is waited for
	}
	if _, err := s.Runtime.Deallocate(ctx, b.ID); err != nil {
		return err
	}
	if err := s.Runtime.Drain(ctx); err != nil {
		return err
	}
	return run(h, module, testkernels.Write, on.ID(), on.Handle(), args...)
}
