// Package fakecuda builds the stand-in for libcuda.so.1 that package libcuda is
// tested with, for tests elsewhere: devices of host memory behind the driver's
// functions.
package fakecuda

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/fencepost-gpu/fencepost/internal/dynlib"
)

// source is the stand-in, from the root of the module.
const source = "cuda/libcuda/testdata/fakecuda.c"

// ErrCannotBuild is matched by an error that says that the machine lacks what
// the stand-in is built from: a C compiler or its source.
var ErrCannotBuild = errors.New("the fake driver library cannot be built here")

// object is the stand-in without settings, compiled once.
var object = sync.OnceValues(func() ([]byte, error) {
	here := source
	for _, err := os.Stat(here); errors.Is(err, os.ErrNotExist); _, err = os.Stat(here) {
		if here = filepath.Join("..", here); len(here) > len(source)+30 {
			return nil, fmt.Errorf("%w: %s is in no folder above this one", ErrCannotBuild, source)
		}
	}
	dir, err := os.MkdirTemp("", "fakecuda")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "fake.o")
	if err := compile("-c", "-O1", "-o", path, here); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

// Build links the stand-in into dir and returns its path. The settings are
// those that the source lists, such as "devices" and "version".
func Build(dir string, settings map[string]int) (string, error) {
	if !dynlib.Supported {
		return "", fmt.Errorf("%w: it could not be loaded on this system", ErrCannotBuild)
	}
	compiled, err := object()
	if err != nil {
		return "", err
	}
	fake, configure, library := filepath.Join(dir, "fake.o"), filepath.Join(dir, "configure.c"), filepath.Join(dir, "libcuda.so.1")
	err = errors.Join(os.WriteFile(fake, compiled, 0o600), os.WriteFile(configure, []byte(constructor(settings)), 0o600))
	if err != nil {
		return "", err
	}
	return library, compile("-shared", "-o", library, fake, configure)
}

func compile(args ...string) error {
	out, err := exec.Command("cc", append([]string{"-fPIC", "-pthread"}, args...)...).CombinedOutput() //nolint:gosec,noctx // a test's own files, and quick
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("%w: no C compiler here", ErrCannotBuild)
	}
	if err != nil {
		return fmt.Errorf("cc %q: %w\n%s", args, err, out)
	}
	return nil
}

// constructor is C code that makes the settings when the library is loaded, so
// that they hold in a child process too.
func constructor(settings map[string]int) string {
	var b strings.Builder
	b.WriteString("void fake_set(const char *key, unsigned long value);\n__attribute__((constructor)) static void configure(void) {\n")
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&b, "\tfake_set(%q, %d);\n", key, settings[key])
	}
	b.WriteString("}\n")
	return b.String()
}
