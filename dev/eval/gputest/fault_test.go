package gputest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/testkit/testkernels"
)

// faultReport is what a process says in which a kernel has faulted.
type faultReport struct {
	Armed    string
	Kind     string
	Suspects []string
	Victim   core.Tag
	Offset   int64
	Text     string
	// Accessed is the address that the plant meant, Done whether the work behind the fault was said to be done.
	Accessed uint64
	Done     bool
	Took     time.Duration
}

const faultPrefix = "fault: "

// faultKernels are the kernels of the plants.
var faultKernels = map[string]string{"read": testkernels.CopyAdd, "write": testkernels.Write, "atomic": testkernels.Check, "behind": testkernels.CopyAdd, "never": testkernels.CopyAdd}

// plantFault commits a fault of a kind, by a grid of so many blocks, in a runtime that names faults, beside honest
// launches on other streams.
func plantFault(spec string) int {
	kind, size, _ := strings.Cut(spec, ":")
	blocks := 1
	if _, err := fmt.Sscan(size, &blocks); err != nil || faultKernels[kind] == "" {
		fmt.Fprintln(os.Stderr, "planting:", spec, err)
		return 2
	}
	report, err := fault(kind, blocks)
	if err != nil {
		fmt.Fprintln(os.Stderr, "planting:", err)
		return 1
	}
	line, _ := json.Marshal(report)
	fmt.Println(faultPrefix + string(line))
	return 0
}

func fault(kind string, blocks int) (report faultReport, err error) {
	found := make(chan core.Finding, 16)
	rt, err := fencepost.Open(ctx, fencepost.Config{Device: fencepost.CUDA, Guard: "hunt:unmap", Faults: fencepost.FaultsNamed,
		OnFinding: func(f core.Finding) { found <- f }})
	if err != nil {
		return report, err
	}
	report.Armed = rt.GuardStatus().Faults
	module, err := cuda.LoadModule(rt.Driver(), testkernels.Image())
	if err != nil {
		return report, err
	}
	kernel := func(name string) *cuda.Kernel {
		k, e := module.Kernel(name)
		err = errors.Join(err, e)
		return k
	}
	write, delay, bad := kernel(testkernels.Write), kernel(testkernels.Delay), kernel(faultKernels[kind])
	var leases []*cuda.Lease
	var out []core.Block
	alloc := func(on *cuda.Lease, tag core.Tag) core.Block {
		b, e := rt.Allocate(ctx, core.Request{Bytes: 1 << 20, Stream: on.ID(), Tag: tag})
		err = errors.Join(err, e)
		return b
	}
	for _, tag := range []core.Tag{"honest.a", "honest.b", "planted.out"} {
		l, e := rt.Streams().Acquire(ctx, tag)
		err = errors.Join(err, e)
		if err != nil {
			return report, err
		}
		leases, out = append(leases, l), append(out, alloc(l, tag))
	}
	planted := leases[2]
	victim := alloc(planted, "planted.victim")
	words := 256 * blocks
	writes := func(on *cuda.Lease, b core.Block) error {
		return rt.LaunchNamed(ctx, "honest", on.ID(), []core.Use{{Block: b.ID, Access: core.Write}}, func(context.Context) error {
			return write.Enqueue(on.Handle(), grid(words), driver.Ptr(b.ID.Ptr), driver.U64(uint64(words)), driver.U64(1))
		})
	}
	err = errors.Join(err, writes(planted, victim), rt.Streams().Synchronize(ctx, planted.ID()))
	if err != nil {
		return report, err
	}
	report.Accessed = victim.ID.Ptr
	const mapping = 2 << 20
	switch kind {
	case "behind":
		report.Accessed = victim.ID.Ptr&^(mapping-1) + mapping
	case "never":
		report.Accessed = 0x7000_0000_0000
	default:
		_, err = rt.Deallocate(ctx, victim.ID)
		for end := time.Now().Add(5 * time.Second); err == nil && rt.Core().State(victim.ID) != core.Freed; {
			if time.Now().After(end) {
				return report, errors.New("the victim is not unmapped")
			}
			err = rt.ReapPending(ctx)
		}
	}
	for i, on := range leases[:2] { // in flight beside it
		err = errors.Join(err, rt.LaunchNamed(ctx, "honest", on.ID(), []core.Use{{Block: out[i].ID, Access: core.Write}}, func(context.Context) error {
			return delay.Enqueue(on.Handle(), grid(1), driver.U64(uint64(20*time.Millisecond)))
		}))
	}
	if err != nil {
		return report, err
	}
	n, at := driver.U64(uint64(words)), driver.Ptr(report.Accessed)
	args := map[string][]driver.Arg{"write": {at, n, driver.U64(7)}, "atomic": {driver.Ptr(out[2].ID.Ptr), n, driver.U64(12345), at}}[kind]
	if args == nil {
		args = []driver.Arg{driver.Ptr(out[2].ID.Ptr), at, n, driver.U64(1)}
	}
	began := time.Now()
	err = rt.LaunchNamed(ctx, "planted", planted.ID(), []core.Use{{Block: out[2].ID, Access: core.Write}}, func(context.Context) error {
		return bad.Enqueue(planted.Handle(), cuda.Blocks1D(words, 256), args...)
	})
	if err == nil {
		err = rt.Streams().Synchronize(ctx, planted.ID())
	}
	report.Done, report.Took = err == nil, time.Since(began)
	for {
		select {
		case f := <-found:
			if f.Kind != names.FindingIllegalAccess && f.Kind != names.FindingStickyError {
				continue
			}
			report.Kind, report.Victim, report.Offset, report.Text = string(f.Kind), f.Victim.Tag, f.Offset, f.Text
			for _, u := range f.Suspects {
				report.Suspects = append(report.Suspects, u.Launch)
			}
			return report, nil
		case <-time.After(30 * time.Second):
			return report, fmt.Errorf("there is no finding; the last error was %w", err)
		}
	}
}
