package gputest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"

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

// faultKernels are the kernels of the plants; one of a library is its own.
var faultKernels = map[string]string{"read": testkernels.CopyAdd, "write": testkernels.Write, "atomic": testkernels.Check, "behind": testkernels.CopyAdd,
	"never": testkernels.CopyAdd, "graph": testkernels.CopyAdd, "library": testkernels.CopyAdd, "last": testkernels.Illegal}

// exitNoLibrary is the exit code where cuBLAS is not installed.
const exitNoLibrary = 3

var errNoLibrary = errors.New("cuBLAS is not installed")

// saxpy loads cuBLAS, and returns what enqueues y += x, of n numbers of 32 bits.
func saxpy(on driver.Stream) (func(x, y uint64, n int) error, error) {
	var handle uintptr
	err := errNoLibrary
	for _, name := range []string{"libcublas.so", "libcublas.so.13", "libcublas.so.12", "/usr/local/cuda/lib64/libcublas.so"} {
		if handle, err = purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_GLOBAL); err == nil {
			break
		}
	}
	if err != nil {
		return nil, errNoLibrary
	}
	call := func(function string, args ...uintptr) error {
		symbol, err := purego.Dlsym(handle, function)
		if err != nil {
			return err
		}
		if code, _, _ := purego.SyscallN(symbol, args...); uint32(code) != 0 {
			return fmt.Errorf("%s: code %d", function, uint32(code))
		}
		return nil
	}
	blas, one := new(uintptr), new(float32)
	*one = 1
	err = call("cublasCreate_v2", uintptr(unsafe.Pointer(blas)))
	if err == nil {
		err = call("cublasSetStream_v2", *blas, uintptr(on))
	}
	return func(x, y uint64, n int) error {
		return call("cublasSaxpy_v2", *blas, uintptr(n), uintptr(unsafe.Pointer(one)), uintptr(x), 1, uintptr(y), 1)
	}, err
}

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
	if errors.Is(err, errNoLibrary) {
		return exitNoLibrary
	}
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
	words := 256 * blocks
	alloc := func(on *cuda.Lease, tag core.Tag) core.Block {
		b, e := rt.Allocate(ctx, core.Request{Bytes: max(1<<20, 8*uint64(words)), Stream: on.ID(), Tag: tag})
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
	n := driver.U64(uint64(words))
	launch := func(enqueue func() error) error {
		return rt.LaunchNamed(ctx, "planted", planted.ID(), []core.Use{{Block: out[2].ID, Access: core.Write}}, func(context.Context) error { return enqueue() })
	}
	commit := func() error {
		at := driver.Ptr(report.Accessed)
		args := map[string][]driver.Arg{"write": {at, n, driver.U64(7)}, "atomic": {driver.Ptr(out[2].ID.Ptr), n, driver.U64(12345), at}, "last": {at}}[kind]
		if args == nil {
			args = []driver.Arg{driver.Ptr(out[2].ID.Ptr), at, n, driver.U64(1)}
		}
		return launch(func() error { return bad.Enqueue(planted.Handle(), cuda.Blocks1D(words, 256), args...) })
	}
	switch kind {
	case "graph":
		graph, err := planted.Capture(ctx, "planted", []core.Use{{Block: out[2].ID, Access: core.Write}}, func(s driver.Stream) error {
			return bad.Enqueue(s, cuda.Blocks1D(words, 256), driver.Ptr(out[2].ID.Ptr), driver.Ptr(report.Accessed), n, driver.U64(1))
		})
		if err != nil {
			return report, err
		}
		commit = func() error { return graph.Launch(ctx, rt, planted) }
	case "library":
		add, err := saxpy(planted.Handle())
		if err != nil {
			return report, err
		}
		commit = func() error { return launch(func() error { return add(report.Accessed, out[2].ID.Ptr, 2*words) }) }
	}
	const mapping = 2 << 20
	switch kind {
	case "behind":
		report.Accessed = (victim.ID.Ptr + victim.Bytes + mapping - 1) &^ (mapping - 1)
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
	began := time.Now()
	err = commit()
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
