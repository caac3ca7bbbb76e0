package libcuda

import (
	"errors"
	"fmt"
	"os"
	"unsafe"
)

// Attributes of the driver's core dumps (CUcoredumpSettings), and flags of what is in one (CUCoredumpGenerationFlags).
const (
	dumpOnException = 1
	dumpTheHost     = 2
	dumpFile        = 5
	dumpFlags       = 7

	dumpSkipsImages   = 1 << 0 // as they were before they were loaded
	dumpSkipsGlobal   = 1 << 1
	dumpSkipsShared   = 1 << 2
	dumpSkipsLocal    = 1 << 3
	dumpSkipsAbort    = 1 << 4
	dumpSkipsConstant = 1 << 5

	// dumpLight leaves all memory out, and the process alive.
	dumpLight = dumpSkipsImages | dumpSkipsGlobal | dumpSkipsShared | dumpSkipsLocal | dumpSkipsConstant | dumpSkipsAbort
)

// DumpVersion is the oldest driver that writes core dumps without memory, as [Library.Version] says it: CUDA 12.5.
const DumpVersion = 12050

// ErrDumpsTaken is the error for a process whose core dumps somebody else has asked for.
var ErrDumpsTaken = errors.New("GPU core dumps were asked for by others already, and are left as they are")

// ArmDump makes the driver write a core dump to file when a kernel faults in the primary context of a device: what the device was
// doing, with the parameters and registers of its kernels, and no memory. The context must not have been made yet. The file
// is a path of at most 1023 bytes, and may be a named pipe, which must be read to the end each time, or the driver waits
// for ever. It is written before the fault becomes an error of calls, and until then completions may be said of work that
// was not done. The setting is the process's, for contexts that are made from now on, until [Library.DisarmDump].
// Errors are [ErrDumpsTaken], [errors.ErrUnsupported] and the driver's. It needs a driver of CUDA 12.5.
func (l *Library) ArmDump(ordinal int, file string) error {
	if l.version < DumpVersion {
		return unsupported(cuCoredumpSetAttributeGlobal, "GPU core dumps without memory need a driver of CUDA 12.5 or later, this one is of CUDA "+versionText(l.version))
	}
	if err := l.needs(cuCoredumpGetAttributeGlobal, cuCoredumpSetAttributeGlobal, cuDevicePrimaryCtxGetState); err != nil {
		return err
	}
	if on := os.Getenv("CUDA_ENABLE_COREDUMP_ON_EXCEPTION"); on != "" && on != "0" {
		return fmt.Errorf("CUDA_ENABLE_COREDUMP_ON_EXCEPTION is set: %w", ErrDumpsTaken)
	}
	switch on, err := l.dumpAttribute(dumpOnException); {
	case err != nil:
		return err
	case on:
		return ErrDumpsTaken
	}
	switch made, err := l.contextMade(ordinal); {
	case err != nil:
		return err
	case made:
		return unsupported(cuCoredumpSetAttributeGlobal, "another part of this process has made the device's context already, and the driver arms only contexts that are made later: open the runtime before it")
	}
	flags, off, on := uint32(dumpLight), false, true
	path := append([]byte(file), 0)
	for _, set := range []struct {
		attribute uintptr
		value     unsafe.Pointer
		size      int
	}{
		{dumpFile, unsafe.Pointer(&path[0]), len(path)},
		{dumpFlags, unsafe.Pointer(&flags), int(unsafe.Sizeof(flags))},
		{dumpTheHost, unsafe.Pointer(&off), 1},
		{dumpOnException, unsafe.Pointer(&on), 1},
	} {
		if err := l.setDumpAttribute(set.attribute, set.value, set.size); err != nil {
			return err
		}
	}
	return nil
}

// DisarmDump undoes [Library.ArmDump], for contexts that were made meanwhile, too.
func (l *Library) DisarmDump() error {
	off := false
	return l.setDumpAttribute(dumpOnException, unsafe.Pointer(&off), 1)
}

func (l *Library) setDumpAttribute(attribute uintptr, value unsafe.Pointer, size int) error {
	f := newFrame(attribute)
	defer f.release()
	f.c.Args[1], f.c.Args[2] = f.host(value), f.result(0)
	f.out[0] = uint64(size)
	return l.fail(cuCoredumpSetAttributeGlobal, l.call(cuCoredumpSetAttributeGlobal, f))
}

// dumpAttribute reads an attribute that is a bool.
func (l *Library) dumpAttribute(attribute uintptr) (bool, error) {
	f := newFrame(attribute)
	defer f.release()
	f.c.Args[1], f.c.Args[2] = f.result(0), f.result(1)
	f.out[1] = 1
	code := l.call(cuCoredumpGetAttributeGlobal, f)
	return f.out[0]&0xff != 0, l.fail(cuCoredumpGetAttributeGlobal, code)
}

// contextMade reports whether the device's primary context is there.
func (l *Library) contextMade(ordinal int) (bool, error) {
	handle, err := l.device(ordinal)
	if err != nil {
		return false, err
	}
	f := newFrame(handle)
	defer f.release()
	f.c.Args[1], f.c.Args[2] = f.result(0), f.result(1)
	code := l.call(cuDevicePrimaryCtxGetState, f)
	return uint32(f.out[1]) != 0, l.fail(cuDevicePrimaryCtxGetState, code)
}
