package main

import (
	"cmp"
	"slices"
	"strings"
)

// layers are the folders of the product from the outside in, as
// docs/architecture.md draws them. A package belongs to the longest prefix that
// fits, and what is in an inner layer should not use what is in an outer one.
// Folders on one line are beside each other: between them imports say which way
// uses go, and no use counts as against the order.
var layers = [][]string{
	{"."},
	{"internal/health", "internal/operators"},
	{"internal/findings"},
	{"telemetry"},
	{"decorators"},
	{"cuda"},
	{"cuda/internal"},
	{"internal/fence"},
	{"cuda/libcuda", "cuda/guardkernels", "internal/loadtext"},
	{"cuda/driver"},
	{"internal/blocktable", "internal/listeners"},
	{"core"},
	{"internal"},
}

// apart are the folders below those of the product that are not of it: the
// simulated device, and what is there for tests.
var apart = []string{"core/coretest", "cuda/driver/drivertest", "cuda/fenceproof", "cuda/sim"}

// seeds are the folders whose packages, but for those apart, are the product; so
// is what they import from internal/.
var seeds = []string{"core", "cuda", "decorators", "telemetry"}

func isSeed(dir string) bool {
	return dir == "." || inAny(dir, seeds) && !inAny(dir, apart)
}

// rank is the number of a folder's layer, from the outside in.
func rank(dir string) int {
	best, length := -1, -1
	for i, folders := range layers {
		for _, f := range folders {
			if (dir == f || strings.HasPrefix(dir, f+"/")) && len(f) > length {
				best, length = i, len(f)
			}
		}
	}
	return best
}

// stale are the names above that the product does not have any more: then the text
// would say less than it seems to.
func stale(o *owners) (gone []string) {
	nodes, folders := map[string]bool{}, map[string]bool{}
	for _, n := range o.nodes {
		nodes[n.String()], folders[n.folder] = true, true
	}
	for _, f := range stack {
		if !folders[f] {
			gone = append(gone, f)
		}
	}
	for _, face := range outward {
		if !nodes["core."+face] {
			gone = append(gone, "core."+face)
		}
	}
	for _, t := range notStacked {
		if !nodes[t] {
			gone = append(gone, t)
		}
	}
	for _, f := range later {
		if (&calls{owners: o}).find(f) == nil {
			gone = append(gone, f)
		}
	}
	return gone
}

// group is what packages that are not of the product are counted with: the folder
// that is apart, or the uppermost.
func group(dir string) string {
	for _, f := range apart {
		if inAny(dir, []string{f}) {
			return f
		}
	}
	first, _, _ := strings.Cut(dir, "/")
	return first
}

func inAny(dir string, folders []string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return dir == f || strings.HasPrefix(dir, f+"/") })
}

// outsideIn orders folders by layer, and within one by name.
func outsideIn(a, b string) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b)) }

// stack is what [fencepost.Open] builds, from the outside in: which package's
// resource is the upstream of which. A call of an interface that several of them
// implement goes to the next further in, but for those in outward.
var stack = []string{"telemetry", "decorators/debugguard", "decorators/budget", "decorators/logging", "cuda"}

// outward are the interfaces of core by which an inner layer tells outer ones:
// such a call goes to all that implement them.
var outward = []string{"Listener", "FindingSink", "EventSink"}

// notStacked are types that can be in a stack and are not in the one that Open
// builds by default.
var notStacked = []string{"cuda.DirectResource", "cuda.PoolResource", "telemetry.Probe"}

// later are functions that a worker is given, to be called in its own goroutine.
var later = []string{"telemetry/dump.Writer.make", "telemetry/incident.Writer.handle"}

// walks are the ways that are listed: from an entry, by calls, to the goals, which
// are interfaces whose methods end the way: what the device is asked, or who hears
// that a block is released. Without goals the walk is all that the entry reaches.
var walks = []struct {
	name, entry string
	goals       []string
}{
	{"an allocation", "core.Runtime.Allocate", []string{"cuda/driver.Driver", "internal/fence.Port"}},
	{"a launch", "core.Runtime.Launch", []string{"cuda/driver.Driver", "internal/fence.Port"}},
	{"a free", "core.Runtime.Deallocate", []string{"cuda/driver.Driver", "internal/fence.Port", "core.Listener"}},
	{"a finding", "core.FindingSink.Report", nil},
}
