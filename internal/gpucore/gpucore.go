// Package gpucore reads the core dumps that the CUDA driver writes of a GPU after an
// exception of a kernel: which kernel, block and thread, with which parameters, and
// which address the faulting instruction accessed.
//
// The layout of a dump is that of cudacoredump.h, a part of NVIDIA's cuda-gdb (BSD
// licence). A row of a table has more fields with a newer driver; a field is read only
// where the row has it.
//
// Nothing is guessed. A warp runs on for a while after an access that faults, so its
// registers may hold something else by the time they are dumped. Where they do, and the
// address cannot be computed again from the instructions that made it, [Access.Known] is
// false and [Access.Why] says why.
package gpucore

import (
	"fmt"
	"io"
)

// Dump is what a GPU core dump says. It refers to nothing of the input, and reading
// it from several goroutines at once is safe.
type Dump struct {
	// Driver is the driver's version, like "580.159", or empty: drivers before 565
	// do not say.
	Driver  string
	Devices []Device
	// Grids are the kernels that ran, or waited to run, when the dump was made; the
	// first 4096.
	Grids []Grid
	// Faults are at most 64 faults: one of each warp that faulted, then one of each
	// multiprocessor that reports a fault of a warp that has ended.
	Faults []Fault
	// MoreFaults counts those that are not in Faults.
	MoreFaults int
	// HasMemory says that the dump holds contents of the device's memory, which
	// were not kept.
	HasMemory bool
}

// Device is a GPU that the process saw.
type Device struct {
	Index  int    // in the dump, the devices' order
	Name   string // like "NVIDIA H200"
	SM     string // the architecture, like "sm_90"
	PCIBus uint32 // the bus of its PCI address
	PCIDev uint32 // the device of its PCI address
}

// Grid is one launch of a kernel that had not ended.
type Grid struct {
	ID     uint64 // the driver's number of the launch in its context
	Device int    // a [Device.Index]
	Kernel string // as the linker knows it, so C++ names are mangled; empty if not found
	Entry  uint64 // the address of the kernel's first instruction
	// Params are the parameters as they were passed, each at its offset, at most
	// 64 KiB. It is nil if the dump has none.
	Params  []byte
	Blocks  [3]uint32 // of the grid: x, y, z
	Threads [3]uint32 // of each block: x, y, z
}

// Fault is an exception of one warp.
//
// The hardware reports it for the whole warp: which of the lanes made the access
// that faulted, only their addresses tell.
type Fault struct {
	Device int // a [Device.Index]
	SM     int // the multiprocessor's number
	// Grid is an index into [Dump.Grids], or -1 if the warp has ended. A grid of the
	// same Kernel may then be the one, or a later launch.
	Grid int
	// Kernel is the kernel's name as in [Grid.Kernel], or empty if not found.
	Kernel string
	// Function is the function that PC lies in: Kernel, or one that it calls; empty
	// if not found.
	Function  string
	Exception Exception
	// Block and Thread are the indices x, y, z of the first lane that made the
	// access, or if that is not known of the first lane with the exception. They are
	// zero if the warp has ended.
	Block, Thread [3]uint32
	// PC is the address of the instruction that faulted, zero if not known.
	PC uint64
	// Offset is that of PC into Function, in bytes.
	Offset uint64
	Access Access
}

// Access is what the faulting instruction did.
type Access struct {
	Kind AccessKind
	// Bytes is how much each lane accessed, zero if not known.
	Bytes uint32
	// Known says whether the addresses are known.
	Known bool
	// Address is where the first lane's access begins; Lowest and Highest are the
	// lowest and the highest of all lanes. All are zero unless Known. Through a generic
	// pointer it may be an address of the windows for shared and local memory.
	Address, Lowest, Highest uint64
	// Lanes are the lanes that made the access, nil unless Known.
	Lanes []Lane
	// Why says why the addresses are not known. It is empty if Known.
	Why string
}

// Lane is one thread's part of an access.
type Lane struct {
	Thread  [3]uint32 // x, y, z in its block
	Address uint64    // where its access begins
}

// AccessKind is what an instruction does to global memory.
type AccessKind uint8

// The kinds of access.
const (
	AccessUnknown AccessKind = iota
	AccessRead
	AccessWrite
	AccessAtomic // reads and writes
)

// String returns the kind as a word.
func (k AccessKind) String() string {
	return [...]string{"unknown", "read", "write", "atomic"}[min(k, AccessAtomic)]
}

// Exception is the driver's number of what went wrong, a CUDBGException_t.
type Exception uint32

var exceptions = [...]string{
	0:  "no exception",
	1:  "lane illegal address",
	2:  "lane user stack overflow",
	3:  "device hardware stack overflow",
	4:  "warp illegal instruction",
	5:  "warp out-of-range address",
	6:  "warp misaligned address",
	7:  "warp invalid address space",
	8:  "warp invalid PC",
	9:  "warp hardware stack overflow",
	10: "device illegal address",
	11: "lane misaligned address",
	12: "warp assert",
	13: "lane syscall error",
	14: "warp illegal address",
	15: "lane non-migratable atomic",
	16: "lane invalid atomic",
	17: "cluster out-of-range address",
	18: "cluster block not present",
	19: "warp stack canary",
	20: "warp tensor memory access check",
	21: "warp tensor memory leak",
	22: "warp call requires a newer driver",
}

// String returns the exception's name, or "exception N".
func (e Exception) String() string {
	if int64(e) < int64(len(exceptions)) {
		return exceptions[e]
	}
	return fmt.Sprintf("exception %d", uint32(e))
}

// OfAccess reports whether the exception is of an address that was accessed.
func (e Exception) OfAccess() bool {
	switch e {
	case 1, 5, 6, 7, 10, 11, 14, 15:
		return true
	}
	return false
}

// Read reads a dump from r, which may be a pipe, to its end. It takes less than 64 MiB
// of memory for a dump of 128 MiB of a full device, and nothing on a disk. The code that is loaded is in a dump: with
// cuBLAS it has 416 MiB. It is held compressed while it is read. A dump of more than 1 GiB is
// an error, and so is one that takes more than 256 MiB when compressed, and one that is cut
// short or damaged where it is read; nothing of it is returned then.
//
// Read blocks as long as r does. Calls are independent of each other.
func Read(r io.Reader) (*Dump, error) {
	s, err := newStore(r)
	if err != nil {
		return nil, err
	}
	d, err := parse(s, s.size)
	if err != nil {
		return nil, fmt.Errorf("gpucore: %w", err)
	}
	return d, nil
}
