package doctor

import (
	"context"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
	"github.com/fencepost-gpu/fencepost/internal/environ"
	"github.com/fencepost-gpu/fencepost/internal/nvml"
)

// Library is what the doctor asks of the CUDA driver; [libcuda.Library] is
// one.
type Library interface {
	// Path is what the library was loaded as.
	Path() string
	// Version is the driver API's, such as 13000 for CUDA 13.0.
	Version() int
	// Missing names the symbols that it lacks.
	Missing() []string
	// DeviceCount is how many devices the process sees.
	DeviceCount() (int, error)
	// Describe describes a device without making a context there.
	Describe(ordinal int) (libcuda.Description, error)
}

// System is a machine to be looked at.
type System struct {
	// Files is the file system, from its root.
	Files fs.FS
	// Variable is an environment variable, and whether it is set.
	Variable func(name string) (string, bool)
	// Environ is the whole environment, as name=value.
	Environ func() []string
	// Access says why a device file cannot be read and written.
	Access func(path string) error
	// LockedMax is the limit on locked memory, 0 for none.
	LockedMax func() uint64
	// Load loads the CUDA driver.
	Load func() (Library, error)
	// NVML reads the management library.
	NVML func() (nvml.Reading, error)
	// Test uses the device that the configuration asks for.
	Test func(context.Context, fencepost.Config) SelfTest
}

// Here is the machine that this process runs on.
func Here() System {
	return System{
		Files:     os.DirFS("/"),
		Variable:  os.LookupEnv,
		Environ:   os.Environ,
		Access:    access,
		LockedMax: lockedMax,
		Load: func() (Library, error) {
			l, err := libcuda.Load()
			if err != nil {
				return nil, err // and not an interface around a nil pointer
			}
			return l, nil
		},
		NVML: func() (nvml.Reading, error) { return nvml.Read() },
		Test: Test,
	}
}

// text is a file's content, or nothing.
func (s System) text(name string) string {
	b, _ := fs.ReadFile(s.Files, name)
	return string(b)
}

func (s System) exists(name string) bool {
	_, err := fs.Stat(s.Files, name)
	return err == nil
}

// value is a variable's, empty if it is not set.
func (s System) value(name string) string {
	v, _ := s.Variable(name)
	return v
}

// otherVariables mean something to the driver or to its containers.
var otherVariables = []environ.Variable{
	{Name: libcuda.PathVariable, Meaning: "the CUDA driver library to load"},
	{Name: "CUDA_VISIBLE_DEVICES", Meaning: "devices that the driver shows, in its order"},
	{Name: "CUDA_DEVICE_ORDER", Meaning: "order of the devices' numbers"},
	{Name: "CUDA_MPS_PIPE_DIRECTORY", Meaning: "where MPS is reached"},
	{Name: "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", Meaning: "device memory for a client of MPS"},
	{Name: "NVIDIA_VISIBLE_DEVICES", Meaning: "devices given to the container"},
	{Name: "NVIDIA_DRIVER_CAPABILITIES", Meaning: "driver libraries given to the container"},
}

func (s System) settings() []Setting {
	all := []Setting{}
	for _, v := range append(environ.Variables(), otherVariables...) {
		if value, ok := s.Variable(v.Name); ok {
			all = append(all, Setting{Name: v.Name, Value: value, Meaning: v.Meaning})
		}
	}
	return all
}

func (s System) host() Host {
	h := Host{Nodes: s.nodes(), WSL: s.exists("dev/dxg"), Container: s.container(), MPS: s.mps(),
		MemoryMax: s.memoryMax(), LockedMax: s.LockedMax()}
	if visible, ok := s.Variable("CUDA_VISIBLE_DEVICES"); ok {
		h.VisibleDevices = &visible
	}
	return h
}

// nodes are the device files that CUDA needs: nvidiactl, nvidia-uvm and one
// for each device.
func (s System) nodes() []Node {
	nodes := []Node{}
	entries, _ := fs.ReadDir(s.Files, "dev") // a machine without /dev has none
	for _, e := range entries {
		number, numbered := strings.CutPrefix(e.Name(), "nvidia")
		if _, err := strconv.Atoi(number); !numbered || err != nil && number != "ctl" && number != "-uvm" {
			continue
		}
		n := Node{Path: "/dev/" + e.Name()}
		if err := s.Access(n.Path); err != nil {
			n.Error = err.Error()
		}
		nodes = append(nodes, n)
	}
	return nodes
}

func (s System) container() string {
	switch {
	case s.value("KUBERNETES_SERVICE_HOST") != "":
		return "kubernetes"
	case s.exists(".dockerenv"):
		return "docker"
	case s.exists("run/.containerenv"):
		return "podman"
	}
	return s.value("container") // as systemd-nspawn and others set it
}

// mps is the folder of the control daemon's pipe, if the pipe is there.
func (s System) mps() string {
	folder := s.value("CUDA_MPS_PIPE_DIRECTORY")
	if folder == "" {
		folder = "/tmp/nvidia-mps"
	}
	if s.exists(path.Join(strings.TrimPrefix(folder, "/"), "control")) {
		return folder
	}
	return ""
}

// memoryMax is the least limit on the way from the process's control group to
// the root, 0 for none. Version 2 of control groups only.
func (s System) memoryMax() uint64 {
	least := uint64(0)
	for line := range strings.Lines(s.text("proc/self/cgroup")) {
		group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		for at := path.Join("sys/fs/cgroup", group); ok && at != "sys/fs"; at = path.Dir(at) {
			limit, err := strconv.ParseUint(strings.TrimSpace(s.text(path.Join(at, "memory.max"))), 10, 64)
			if err == nil && (least == 0 || limit < least) {
				least = limit
			}
			if !strings.HasPrefix(at, "sys/fs/cgroup/") {
				break
			}
		}
	}
	return least
}

// blocked are the device files that cannot be used.
func (h Host) blocked() []string {
	var paths []string
	for _, n := range h.Nodes {
		if n.Error != "" {
			paths = append(paths, n.Path)
		}
	}
	return paths
}

// hasNode reports whether a device file is there.
func (h Host) hasNode(path string) bool {
	return slices.ContainsFunc(h.Nodes, func(n Node) bool { return n.Path == path })
}
