package doctor

import (
	"context"
	"io/fs"
	"os"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/cmd/fencepost/internal/nvml"
	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
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
