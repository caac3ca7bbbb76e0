package libcuda

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/dynlib"
	"github.com/fencepost-gpu/fencepost/internal/legible"
)

// ErrNoDriver is matched by every error of loading: there is no CUDA driver
// that could be used on this machine. See [LoadError].
var ErrNoDriver = errors.New("no CUDA driver here")

// Stage is how far loading the driver came.
type Stage string

// The stages, in their order.
const (
	// StageOpen: no library could be opened.
	StageOpen Stage = "open"
	// StageSymbols: the library is no CUDA driver.
	StageSymbols Stage = "symbols"
	// StageVersion: the driver is older than [MinVersion].
	StageVersion Stage = "version"
	// StageInit: cuInit failed, or cuDriverGetVersion before it.
	StageInit Stage = "init"
)

// LoadError says why there is no usable driver, and what to do about it. It
// matches [ErrNoDriver].
type LoadError struct {
	Stage Stage
	// Path is the library concerned, as it was asked for.
	Path string
	// Code is the CUresult of the call that failed; 0 if there was none.
	Code int
	// Text says what went wrong.
	Text string
	// Help says what to do.
	Help string
}

// Error begins with the text of ErrNoDriver and ends with the help.
func (e *LoadError) Error() string {
	s := ErrNoDriver.Error() + ": "
	if !strings.Contains(e.Text, e.Path) { // the dynamic linker names it itself
		s += legible.Text(e.Path) + ": "
	}
	s += legible.Text(e.Text)
	if e.Help != "" {
		s += "; " + e.Help
	}
	return s
}

// Brief is the error on one short line: without the help, and of a library that is not
// there without the dynamic linker's words.
func (e *LoadError) Brief() string {
	if e.Stage != StageOpen {
		return ErrNoDriver.Error() + ": " + legible.Text(e.Path+": "+e.Text)
	}
	_, reasons, _ := strings.Cut(e.Text, ": ")
	present := slices.DeleteFunc(strings.Split(reasons, "; "), func(reason string) bool {
		return strings.Contains(reason, "No such file or directory") // the linker's words
	})
	if len(present) == 0 {
		return ErrNoDriver.Error() + ": " + legible.Text(e.Path+" not found")
	}
	return ErrNoDriver.Error() + ": " + legible.Text(strings.Join(present, "; "))
}

// Is matches [ErrNoDriver].
func (e *LoadError) Is(target error) bool { return target == ErrNoDriver }

// notFound is the error if none of the paths could be opened. What the dynamic
// linker said of the first is told, and of files that are there all the same; failures are those of
// the paths.
func notFound(paths []string, failures []error) *LoadError {
	e := &LoadError{Stage: StageOpen, Help: "install the NVIDIA driver (nvidia-smi should work), give a container its GPUs " +
		"(docker run --gpus all), or name the library in " + PathVariable}
	var reasons []string
	for i, path := range paths {
		if _, err := os.Stat(path); i > 0 && err != nil {
			continue
		}
		e.Path = path
		reasons = append(reasons, failures[i].Error())
	}
	if !dynlib.Supported {
		e.Help = "the simulated device needs no driver"
	}
	e.Text = "the driver library could not be opened: " + strings.Join(reasons, "; ")
	return e
}

// initHelp is what to do about a code of cuInit.
var initHelp = map[int]string{
	driver.StubLibrary: "the toolkit's stub was found instead of the driver's library: take the toolkit's lib/stubs out of " +
		"LD_LIBRARY_PATH, or name the real library in " + PathVariable,
	driver.NoDevice: "the driver sees no GPU: see what CUDA_VISIBLE_DEVICES and NVIDIA_VISIBLE_DEVICES say, whether a container " +
		"was given its GPUs, and whether nvidia-smi lists one",
	driver.SystemNotReady: "the system is still starting, or nv-fabricmanager (NVSwitch machines) or another daemon is not running: " +
		"see systemctl status nvidia-fabricmanager, then try again",
	driver.DriverMismatch: "the kernel module and the driver library are of different versions, as after an update without a reboot: " +
		"reboot or reload the nvidia modules, and see that a container does not bring a libcuda of its own",
	driver.CompatNotSupported: "a forward-compatibility libcuda (cuda-compat) was loaded on a GPU that does not support it: " +
		"take it out of LD_LIBRARY_PATH or update the driver",
	driver.OutOfMemory: "the host or the GPU is out of memory: end another process",
	driver.Unknown: "the driver failed for a reason that it does not give, as after a suspend or without /dev/nvidia-uvm: " +
		"see dmesg, run nvidia-modprobe -u or reload the nvidia_uvm module",
}

func initFailed(path string, e entry, code int) *LoadError {
	return &LoadError{Stage: StageInit, Path: path, Code: code, Text: driver.NewError(e.String(), code).Error(),
		Help: cmp.Or(initHelp[code], "see whether nvidia-smi works and what dmesg says")}
}

func tooOld(path string, version int) *LoadError {
	return &LoadError{Stage: StageVersion, Path: path,
		Text: fmt.Sprintf("the driver is of CUDA %s, at least %s is needed", versionText(version), versionText(MinVersion)),
		Help: "update the NVIDIA driver (R470 or later)"}
}

// versionText is 13000 as 13.0.
func versionText(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }
