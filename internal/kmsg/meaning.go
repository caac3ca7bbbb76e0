package kmsg

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// Catalogue is NVIDIA's, which the meanings are taken from.
const Catalogue = "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"

// Meaning is what NVIDIA says of some numbers, for GPUs of Ampere and newer.
type Meaning struct {
	Numbers []int
	// Whose it mostly is, What it is, and what to Do.
	Whose, What, Do string
}

const (
	follows   = "follows another"
	lookForIt = "restart the process and look for the bug; suspect the hardware only if it comes again on one GPU with a program that is known to be good"
	drain     = "drain the host and reset the GPU; replace it if that comes again"
	mended    = "nothing at once; after a 48 reset the GPU"
)

// meanings also make the table of docs/operate.md.
var meanings = [...]Meaning{
	{[]int{13}, "application", "an exception in a kernel", lookForIt},
	{[]int{31}, "application", "an access of memory that is not mapped", lookForIt},
	{[]int{11, 25, 32}, "application", "a command stream that is corrupt", lookForIt},
	{[]int{43, 45}, follows, "a channel was stopped, or cleaned up after an error", "look for the Xid before it"},
	{[]int{94}, "hardware, contained", "an ECC error that cost one process", "restart the process; reset the GPU at the next chance"},
	{[]int{63}, "hardware, mended", "a row of memory was remapped", mended},
	{[]int{92}, "hardware, mended", "many single-bit errors", mended},
	{[]int{48}, "hardware", "a double-bit ECC error", drain},
	{[]int{95}, "hardware", "an ECC error that is not contained", drain},
	{[]int{64}, "hardware", "a row of memory could not be remapped", "drain the host, reset the GPU, replace it"},
	{[]int{46, 62, 109, 119, 120}, "hardware or driver", "the GPU, its controller or its firmware stopped", "drain the host and reset the GPU; then restart the host"},
	{[]int{74}, "hardware", "an error of NVLink", "drain the host; see `nvidia-smi nvlink -e`"},
	{[]int{79}, "hardware", "the GPU has fallen off the bus", "drain and restart the host"},
	{[]int{154}, follows, "the driver says what the GPU needs now", "what its line says"},
}

// Meanings lists what is known.
func Meanings() []Meaning { return slices.Clone(meanings[:]) }

// meaning is what the number means; without numbers if that is not known here.
func (x Xid) meaning() Meaning {
	for _, m := range meanings {
		if slices.Contains(m.Numbers, x.Number) {
			return m
		}
	}
	return Meaning{Whose: "not known here", What: "see " + Catalogue, Do: "what that says"}
}

func (x Xid) tellsCause() bool { return x.meaning().Whose != follows }

// HostPID is this process's number as the driver knows it, 0 in a container with numbers of its own.
func HostPID() int {
	const initial = "pid:[4026531836]" // of the namespace that the kernel makes first
	if ns, err := os.Readlink("/proc/self/ns/pid"); err != nil || ns != initial {
		return 0
	}
	return os.Getpid()
}

// Tell says in words what the Xids are, with their lines; those of the process self first, then those that tell a cause, then the newest. A self of 0 is not known.
func Tell(xids []Xid, self int) string {
	if len(xids) == 0 {
		return "the kernel's log has no Xid of this device since the runtime was opened"
	}
	var own, others []string
	newest := slices.Clone(xids)
	slices.Reverse(newest)
	slices.SortStableFunc(newest, func(a, b Xid) int {
		switch {
		case a.tellsCause() == b.tellsCause():
			return 0
		case a.tellsCause():
			return -1
		}
		return 1
	})
	for _, x := range newest {
		m := x.meaning()
		text := fmt.Sprintf("Xid %d of %s (%s): %s; %s; %+q", x.Number, x.of(self), m.Whose, m.What, m.Do, x.Line)
		if x.More > 0 {
			text += fmt.Sprintf(" and %d more such lines", x.More)
		}
		if x.Age >= burst {
			text += fmt.Sprintf(", some %v ago", x.Age.Truncate(time.Minute))
		}
		if x.PID != 0 && x.PID == self {
			own = append(own, text)
		} else {
			others = append(others, text)
		}
	}
	return "the kernel's log has " + strings.Join(append(own, others...), "; and ")
}

func (x Xid) of(self int) string {
	switch {
	case x.PID == 0:
		return "this device"
	case self == 0:
		return fmt.Sprintf("pid %d on this device (in a container this process has another number)", x.PID)
	case x.PID == self:
		return "this process"
	}
	return fmt.Sprintf("another process, pid %d, on this device", x.PID)
}
