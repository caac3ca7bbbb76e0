package libcuda

import (
	"os"
	"sync"

	"github.com/fencepost-gpu/fencepost/internal/dynlib"
)

// MinVersion is the oldest driver that is accepted, as cuDriverGetVersion says
// it: CUDA 11.4, which has memory pools that can be relied on.
const MinVersion = 11040

// PathVariable is the environment variable that names the library to load.
const PathVariable = "FENCEPOST_LIBCUDA"

// wellKnown are tried in this order: what the dynamic linker finds, then where
// WSL, container images, NixOS and distributions put the library without
// telling the linker.
var wellKnown = []string{
	"libcuda.so.1",
	"/usr/lib/wsl/lib/libcuda.so.1",
	"/usr/local/nvidia/lib64/libcuda.so.1",
	"/run/opengl-driver/lib/libcuda.so.1",
	"/usr/lib64/nvidia/libcuda.so.1",
}

// Library is a CUDA driver library that was loaded and initialised. It stays
// loaded until the process ends. It is safe for concurrent use.
type Library struct {
	path      string
	version   int
	addresses []uintptr // of functions; 0 of those that the library lacks
	// errors are the errorText of each code that the driver was asked for: errors
	// such as out of memory may come often.
	errors sync.Map
}

// loaded is what [Load] returns, which loading guards.
var (
	loading sync.Mutex
	loaded  *Library
)

// Load returns the driver library of this process. The first call loads and
// initialises it, which may take a second and blocks; after a failure, a
// *[LoadError], the next call tries again. The path is that of [PathVariable]
// if it is set, and only that.
func Load() (*Library, error) {
	loading.Lock()
	defer loading.Unlock()
	if loaded != nil {
		return loaded, nil
	}
	paths := wellKnown
	if path := os.Getenv(PathVariable); path != "" {
		paths = []string{path}
	}
	l, err := load(paths)
	if err != nil {
		return nil, err
	}
	loaded = l
	return l, nil
}

// LoadPath loads and initialises one library file, which need not be the one
// that [Load] returns. It may block. Its errors are those of Load.
func LoadPath(path string) (*Library, error) { return load([]string{path}) }

// load opens the first of paths that can be.
func load(paths []string) (*Library, error) {
	var failures []error
	for _, path := range paths {
		handle, err := dynlib.Open(path)
		if err == nil {
			return start(path, handle)
		}
		failures = append(failures, err)
	}
	return nil, notFound(paths, failures)
}

// start looks the symbols up, asks for the version, which needs no GPU, and
// initialises the driver.
func start(path string, handle uintptr) (*Library, error) {
	l := &Library{path: path}
	for _, f := range functions {
		l.addresses = append(l.addresses, dynlib.Symbol(handle, f.symbol))
	}
	for _, e := range []entry{cuInit, cuDriverGetVersion} {
		if l.addresses[e] == 0 {
			return nil, &LoadError{Stage: StageSymbols, Path: path, Text: "the library has no function " + e.symbol(),
				Help: "this is not NVIDIA's driver library: name the right one in " + PathVariable}
		}
	}
	version, code := l.get(cuDriverGetVersion)
	if code != codeSuccess {
		return nil, initFailed(path, cuDriverGetVersion, code)
	}
	if l.version = int(int32(version)); l.version < MinVersion {
		return nil, tooOld(path, l.version)
	}
	f := newFrame(0)
	defer f.release()
	if code := l.call(cuInit, f); code != codeSuccess {
		return nil, initFailed(path, cuInit, code)
	}
	return l, nil
}

// Path is what the library was loaded as.
func (l *Library) Path() string { return l.path }

// Version is the driver's, such as 13000 for CUDA 13.0.
func (l *Library) Version() int { return l.version }

// Missing names the symbols that the library lacks. Each disables only what
// needs it.
func (l *Library) Missing() []string {
	var missing []string
	for e, f := range functions {
		if l.addresses[e] == 0 {
			missing = append(missing, f.symbol)
		}
	}
	return missing
}

// needs is the error of the first of all that the library lacks.
func (l *Library) needs(all ...entry) error {
	for _, e := range all {
		if l.addresses[e] == 0 {
			return l.fail(e, codeMissing)
		}
	}
	return nil
}
