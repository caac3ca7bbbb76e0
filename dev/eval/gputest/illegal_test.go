package gputest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/testkit/testkernels"
)

// exitLost is the code of a service that lost its device and ended in order.
const exitLost = 3

// What the process prints, for the test that started it.
const (
	launchedLine  = "launched"
	findingPrefix = "finding: "
)

// The launches, and the tags of their blocks and streams.
var (
	launchNames = []string{"honest", "honest", "planted"}
	launchTags  = []core.Tag{"honest.a", "honest.b", "planted.victim"}
)

// lost is a service whose kernel writes to an address of its own making.
type lost struct {
	rt      *fencepost.Runtime
	hw      *hardware
	spans   *tracetest.InMemoryExporter
	module  *cuda.Module
	leases  []*cuda.Lease
	blocks  []core.Block
	kernels []*cuda.Kernel
	release []func()
	// wrong is what was not as it should be.
	wrong []error
}

func plantIllegal() int {
	l := &lost{}
	for _, step := range []func() error{l.open, l.prepare, l.launch, l.goOn} {
		if err := step(); err != nil {
			fmt.Fprintln(os.Stderr, "planting:", err)
			return 1
		}
	}
	l.refuses()
	l.reports()
	l.ends()
	for _, err := range l.wrong {
		fmt.Println("wrong:", err)
	}
	if len(l.wrong) > 0 {
		return 1
	}
	return exitLost
}

func (l *lost) demand(ok bool, format string, args ...any) {
	if !ok {
		l.wrong = append(l.wrong, fmt.Errorf(format, args...))
	}
}

func (l *lost) open() (err error) {
	if l.hw, err = openHardware(0); err != nil {
		return err
	}
	l.spans = tracetest.NewInMemoryExporter()
	// Without guard kernels: nothing may want page-locked memory while a
	// stream is stalled.
	cfg := fencepost.Config{Device: fencepost.CUDA, Guard: "ledger", TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(l.spans)),
		OnFinding: func(f core.Finding) { fmt.Println(findingPrefix + f.String()) }}
	if dryRun {
		cfg.Driver = l.hw.sim
	}
	if l.rt, err = fencepost.Open(ctx, cfg); err != nil {
		return err
	}
	l.module, err = cuda.LoadModule(l.rt.Driver(), testkernels.Image())
	return err
}

// prepare gets everything that the launches need, before a stream is stalled.
func (l *lost) prepare() error {
	for i, name := range []string{testkernels.Write, testkernels.Write, testkernels.Illegal} {
		on, err := l.rt.Streams().Acquire(ctx, launchTags[i])
		if err != nil {
			return err
		}
		b, err := l.rt.Allocate(ctx, core.Request{Bytes: plantWords * wordBytes, Stream: on.ID(), Tag: launchTags[i]})
		if err != nil {
			return err
		}
		k, err := l.module.Kernel(name)
		if err != nil {
			return err
		}
		l.leases, l.blocks, l.kernels = append(l.leases, on), append(l.blocks, b), append(l.kernels, k)
	}
	return nil
}

// launch announces and enqueues three launches on stalled streams, and then
// lets the last of them go: whatever was in flight when it broke the device is
// what the report must list.
func (l *lost) launch() error {
	for i, on := range l.leases {
		release, err := l.hw.hold(on.Handle())
		if err != nil {
			return err
		}
		l.release = append(l.release, release)
		args := []driver.Arg{driver.Ptr(l.blocks[i].ID.Ptr), driver.U64(plantWords), driver.U64(1)}
		if launchNames[i] == "planted" {
			args = []driver.Arg{driver.Ptr(0x10)}
		}
		err = l.rt.LaunchNamed(ctx, launchNames[i], on.ID(), []core.Use{{Block: l.blocks[i].ID, Access: core.Write}}, func(context.Context) error {
			return l.kernels[i].Enqueue(on.Handle(), grid(1), args...)
		})
		if err != nil {
			return err
		}
	}
	fmt.Println(launchedLine)
	l.release[len(l.release)-1]()
	return nil
}

// goOn works like a service that knows of nothing, until a call tells.
func (l *lost) goOn() error {
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		b, err := l.rt.Allocate(ctx, core.Request{Bytes: 256, Stream: l.leases[0].ID(), Tag: "going.on"})
		if err == nil {
			_, err = l.rt.Deallocate(ctx, b.ID)
		}
		if errors.Is(err, core.ErrSticky) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the service was told %w", err)
		}
	}
	return errors.New("no call told the service that the device is lost")
}
