// Package limits reads the limits that others set on a process's device memory: of control groups,
// from the files of the controller dmem (Linux 6.14) and through NVML (driver r615), and that of MPS
// from the environment. What is not there, or cannot be read or understood, is no limit.
package limits

import (
	"io"
	"math"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/fencepost-gpu/fencepost/core/readings"
	"github.com/fencepost-gpu/fencepost/internal/nvml"
)

// Root is the folder that stands for the root of the file system. Tests replace it; [New] keeps it.
var Root = "/"

const (
	mounted  = "/sys/fs/cgroup"
	variable = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
)

// Device is the device that the limits are of. What is not known is empty, and has no limits.
type Device struct {
	Ordinal  int
	PCIBusID string
}

// Reader reads the limits. It is safe for concurrent use.
type Reader struct {
	device      Device
	root        string
	environment func(string) string
	groups      func(group string) (limit, used uint64, ok bool)
}

// New returns a reader of d's limits. ofGroup says what NVML's limit of a control group is, by its folder,
// and how many bytes are used of it; nil if it cannot.
func New(d Device, ofGroup func(group string) (limit, used uint64, ok bool)) *Reader {
	return &Reader{d, Root, os.Getenv, ofGroup}
}

// Read reads all limits there are, and leaves it to [Allow] to say what they allow. It reads some small files, and may call NVML.
func (r *Reader) Read() (all []readings.MemoryLimit) {
	for _, group := range r.path() {
		folder := path.Join(mounted, group)
		if limit, ok := r.device.region(r.text(folder + "/dmem.max")); ok {
			used, _ := r.device.region(r.text(folder + "/dmem.current"))
			all = append(all, readings.MemoryLimit{Source: "cgroup", Name: folder + "/dmem.max", Bytes: limit, Used: used})
		}
		if r.groups == nil {
			continue
		}
		if limit, used, ok := r.groups(folder); ok {
			all = append(all, readings.MemoryLimit{Source: "nvml", Name: folder, Bytes: limit, Used: used})
		}
	}
	if limit, ok := r.device.pinned(r.environment(variable)); ok {
		all = append(all, readings.MemoryLimit{Source: "mps", Name: variable, Bytes: limit})
	}
	return all
}

// path is the process's control group of version 2 and those above it, as they are seen from here.
func (r *Reader) path() (groups []string) {
	for line := range strings.Lines(r.text("/proc/self/cgroup")) {
		group, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::/")
		if !ok || len(group) > maxPath || group != "" && !filepath.IsLocal(group) { // "/../x" lies outside of what is mounted here
			continue
		}
		for group = path.Clean("/" + group); ; group = path.Dir(group) {
			groups = append(groups, group)
			if group == "/" {
				return groups
			}
		}
	}
	return nil
}

// Bounds of what is read, in bytes: Linux has no longer path, and a line for each of a machine's
// devices is far shorter.
const (
	maxPath = 4096
	maxText = 64 << 10
)

// text is what is in a file; nothing if it cannot be read, or is longer than any should be.
func (r *Reader) text(name string) string {
	f, err := os.Open(filepath.Join(r.root, name))
	if err != nil {
		return ""
	}
	text, err := io.ReadAll(io.LimitReader(f, maxText+1))
	if f.Close() != nil || err != nil || len(text) > maxText {
		return ""
	}
	return string(text)
}

// region finds the device's number in a file of the controller dmem: each line has a region, such as
// "nvidia/0000:19:00.0/vidmem", and a number, or "max" for no limit.
func (d Device) region(text string) (uint64, bool) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) != 2 || !d.owns(fields[0]) {
			continue
		}
		if n, err := strconv.ParseUint(fields[1], 10, 64); err == nil {
			return n, true
		}
	}
	return 0, false
}

// owns reports whether a region is the device's memory.
func (d Device) owns(region string) bool {
	at, isMemory := strings.CutSuffix(region, "/vidmem")
	return isMemory && nvml.SameBus(d.PCIBusID, path.Base(at))
}

// pinned is the device's limit in the variable of MPS, such as "0=2G,1=512MB".
func (d Device) pinned(value string) (uint64, bool) {
	for part := range strings.SplitSeq(value, ",") {
		device, text, _ := strings.Cut(strings.TrimSpace(part), "=")
		if n, err := strconv.Atoi(device); err == nil && n == d.Ordinal {
			return size(text)
		}
	}
	return 0, false
}

// size is a whole number of M or G, of 1024, with or without a B.
func size(text string) (uint64, bool) {
	text = strings.TrimSuffix(strings.ToUpper(strings.TrimSpace(text)), "B")
	shift := 20
	number, ok := strings.CutSuffix(text, "M")
	if !ok {
		shift = 30
		number, ok = strings.CutSuffix(text, "G")
	}
	n, err := strconv.ParseUint(number, 10, 64)
	return n << shift, ok && err == nil && n <= math.MaxUint64>>shift
}

// Headroom is what a runtime leaves free of so many bytes, for what the driver takes later for modules,
// stacks and printf, and libraries for their workspaces.
func Headroom(of uint64) uint64 { return min(of/32, 256<<20) }

// Allow says in each limit how much a runtime may hold that holds so much, which is used of the limit
// whatever was told, and returns the least of them; no limit allows everything.
func Allow(all []readings.MemoryLimit, held uint64) readings.MemoryLimit {
	least := readings.MemoryLimit{Allowed: math.MaxUint64}
	for i := range all {
		l := &all[i]
		l.Used = max(l.Used, held)
		left := l.Bytes - min(l.Bytes, l.Used)
		l.Allowed = max(1, held+left-min(left, Headroom(l.Bytes))) // 0 would be no limit
		if l.Allowed < least.Allowed {
			least = *l
		}
	}
	return least
}
