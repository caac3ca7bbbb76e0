package sim

import (
	"crypto/rand"
	"fmt"
	"math"
	"regexp"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/legible"
)

// DefaultBytes is the capacity of a device whose Config names none: 16 GiB.
const DefaultBytes uint64 = 16 << 30

// Granule is the unit in bytes in which pools hold the device's memory.
const Granule uint64 = 2 << 20

// maxBytes keeps the addresses of device and host memory apart.
const maxBytes uint64 = 4 << 40

// Schedule says who decides when a queued operation runs. The zero value is
// free-running.
type Schedule struct {
	seeded bool
	seed   uint64
}

// FreeRunning runs every stream on a goroutine of its own.
func FreeRunning() Schedule { return Schedule{} }

// Seeded runs operations inside driver calls, in an order drawn from seed. It
// starts no goroutine; see the package comment. Time is virtual there: an operation begins
// when the host has made the call and what it is ordered after has ended, whatever the order
// drawn, and a call takes the host 1 µs.
//
// The schedule and the times repeat only if one goroutine makes all calls. A runtime looks at the
// device in the background, at intervals of the real clock, unless ReapInterval is negative
// (cuda.PoolConfig, cuda.AsyncConfig).
func Seeded(seed uint64) Schedule { return Schedule{seeded: true, seed: seed} }

// String names the schedule, with its seed.
func (s Schedule) String() string {
	if s.seeded {
		return fmt.Sprintf("seeded(%d)", s.seed)
	}
	return "free-running"
}

// Config describes a device to simulate. The zero value is usable.
type Config struct {
	// Ordinal is the device's number, from 0 and below core.MaxOrdinals.
	Ordinal int
	// Bytes is the capacity, a multiple of [Granule]; 0 means
	// [DefaultBytes]. Memory of the machine is used only where the program
	// touches the device's; on Windows what pools hold counts against the
	// system's commit limit besides.
	Bytes uint64
	// Name is the device's name; empty means "Fencepost simulated GPU".
	Name string
	// UUID is what the device says it is, in the form of nvidia-smi:
	// "GPU-00000000-0000-0000-0000-00000000abcd", or the same behind "MIG-".
	// Empty means one that no other process has and that begins with
	// "GPU-00000000-0000-0000-", the same for each device of an ordinal in this
	// process. The PCI bus id follows from it. Devices of one UUID, in whichever
	// process, are one device in metrics, as processes on a GPU
	// are; but each has all its memory for itself and does not see what the
	// others use.
	UUID string
	// Schedule is free-running unless said otherwise.
	Schedule Schedule
	// ReuseStreamHandles gives the handle of a destroyed stream to the next
	// that is made, as CUDA may. By default a handle never comes again, so
	// that naming a stream that is gone is an error.
	ReuseStreamHandles bool
	// CoreDump, if not empty, is where the device writes a GPU core dump, in the form of CUDA's driver, when a kernel touches memory
	// that is not mapped: the first such kernel, with its parameters, the address and the kernels that run beside it. A twin has no
	// threads, so it is thread 0 of block 0. All of it is written before the context is lost. It is a path of a file, or of a named pipe, which
	// must be read to the end or the device waits for ever. A fault of a copy or fill has none. See [Device.WatchFaults].
	CoreDump string
	// OnFinding, if not nil, is called for each new finding, on a goroutine
	// of its own that the finder waits for. It must not call the device.
	OnFinding func(Finding)
}

// normalize checks c and fills in its defaults.
func (c Config) normalize() (Config, error) {
	if c.Bytes == 0 {
		c.Bytes = DefaultBytes
	}
	if c.Name == "" {
		c.Name = "Fencepost simulated GPU"
	}
	if c.Ordinal < 0 || c.Ordinal >= core.MaxOrdinals {
		return c, configError("Ordinal", fmt.Sprintf("%d is outside 0..%d", c.Ordinal, core.MaxOrdinals-1))
	}
	if c.UUID == "" {
		c.UUID = defaultUUID(c.Ordinal)
	}
	if !uuidForm.MatchString(c.UUID) {
		return c, configError("UUID", fmt.Sprintf("%s: write it as \"nvidia-smi -L\" does, such as %s",
			legible.Value(c.UUID), defaultUUID(c.Ordinal)))
	}
	if c.Bytes%Granule != 0 {
		return c, configError("Bytes", fmt.Sprintf("%d is not a multiple of %d: round it up to %d", c.Bytes, Granule, roundUp(c.Bytes, Granule)))
	}
	if c.Bytes > maxBytes || c.Bytes > math.MaxInt/vaFactor {
		return c, configError("Bytes", fmt.Sprintf("%d is more than a simulated device can have (%d)", c.Bytes, maxBytes))
	}
	return c, nil
}

func configError(field, reason string) error {
	return &core.InvalidRequestError{Op: "sim.Open", Field: field, Reason: reason}
}

// roundUp rounds n up to a multiple of unit, a power of two.
func roundUp(n, unit uint64) uint64 { return (n + unit - 1) &^ (unit - 1) }

// uuidForm is NVIDIA's, of a GPU and of an instance of one.
var uuidForm = regexp.MustCompile(`^(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// process is what tells the simulated devices of this process from those of
// others.
var process = sync.OnceValue(func() (number [6]byte) {
	_, _ = rand.Read(number[:]) // which does not fail
	return number
})

// defaultUUID begins with zeros, as no GPU's does, and ends with the ordinal
// and the process.
func defaultUUID(ordinal int) string {
	return fmt.Sprintf("GPU-00000000-0000-0000-%04x-%x", ordinal, process())
}

// busID is made of the UUID, so that processes that agree on one agree on the
// other: its last 16 bits are the domain, the ordinal's low byte is the bus.
func busID(uuid string) string {
	return fmt.Sprintf("%s:%s:00.0", uuid[36:40], uuid[25:27])
}
