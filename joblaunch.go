package fencepost

import (
	"fmt"
	"unsafe"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// Arg is an argument of a kernel: a number, or memory together with what the
// kernel does with it. Make one with [Value], [Reads], [Writes] or [ReadWrites].
type Arg struct {
	value driver.Arg
	use   core.Use
	kind  argKind
}

type argKind uint8

const (
	noArg argKind = iota
	valueArg
	memoryArg
	nilArg
)

// Reads is memory that the kernel reads.
func Reads[T cuda.Element](s *cuda.Slice[T]) Arg { return argOf(s, core.Read) }

// Writes is memory that the kernel overwrites without reading it.
func Writes[T cuda.Element](s *cuda.Slice[T]) Arg { return argOf(s, core.Write) }

// ReadWrites is memory that the kernel reads and writes.
func ReadWrites[T cuda.Element](s *cuda.Slice[T]) Arg { return argOf(s, core.ReadWrite) }

func argOf[T cuda.Element](s *cuda.Slice[T], access core.Access) Arg {
	if s == nil {
		return Arg{kind: nilArg}
	}
	return Arg{value: s.Arg(), use: s.Use(access), kind: memoryArg}
}

// Value is a number of the size of T, as the kernel's parameter must be: a Go int
// has no size on the device, so say uint32(n) or int64(n).
func Value[T cuda.Element](v T) Arg {
	size := uint8(unsafe.Sizeof(v))
	a := driver.Arg{Size: size}
	p := unsafe.Pointer(&v)
	switch size {
	case 1:
		a.Bits = uint64(*(*uint8)(p))
	case 2:
		a.Bits = uint64(*(*uint16)(p))
	case 4:
		a.Bits = uint64(*(*uint32)(p))
	default:
		a.Bits = *(*uint64)(p)
	}
	return Arg{value: a, kind: valueArg}
}

// launchLists are of one launch at a time.
type launchLists struct {
	uses []core.Use
	args []driver.Arg
}

// Launch enqueues the kernel on the job's stream with the arguments in the order
// of its parameters, and fences it for the memory among them: it waits, on the
// device, for whatever else uses that memory. Memory that the kernel reaches and
// that is no argument, such as through a pointer in memory, cannot be said here:
// use [cuda.Kernel.Launch] for it, with [Job.Stream]. Launch returns when the
// work is enqueued. The name in traces, logs and findings is the kernel's.
//
// Errors are those of [cuda.Kernel.Launch], [core.InvalidRequestError] for a nil
// kernel or slice and an argument that nothing made, and those of every call of a
// job, see [Alloc].
func (j *Job) Launch(k *cuda.Kernel, grid cuda.Grid, args ...Arg) error {
	if err := j.check("Job.Launch"); err != nil {
		return err
	}
	s := j.state
	lists := &s.calls
	lists.uses, lists.args = lists.uses[:0], lists.args[:0]
	for i := range args {
		a := &args[i]
		switch a.kind {
		case memoryArg:
			lists.uses = append(lists.uses, a.use)
		case valueArg:
		default:
			return notAnArg(i, a.kind)
		}
		lists.args = append(lists.args, a.value)
	}
	j.on.busy = true
	return k.Launch(s.ctx, s.rt.Runtime, j.on.lease, grid, lists.uses, lists.args...)
}

func notAnArg(i int, kind argKind) error {
	e := &core.InvalidRequestError{Op: "Job.Launch", Field: fmt.Sprintf("argument %d", i+1), Reason: "empty: make it with Value, Reads, Writes or ReadWrites"}
	if kind == nilArg {
		e.Reason = "a nil slice: pass what Alloc or Upload returned, and see to its error"
	}
	return e
}
