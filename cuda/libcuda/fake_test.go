package libcuda_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
	"go.uber.org/goleak"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
	"github.com/fencepost-gpu/fencepost/internal/dynlib"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// compiled is the fake driver library, built once.
var compiled = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "fakecuda")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "fake.so")
	cmd := exec.Command("cc", "-shared", "-fPIC", "-O1", "-Wall", "-pthread", "-o", path, "testdata/fakecuda.c")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, errors.Join(err, errors.New(string(out)))
	}
	return os.ReadFile(path)
})

// fake is one copy of the fake driver library, with state of its own.
type fake struct {
	testing.TB
	path   string
	handle uintptr
}

// newFake makes a copy that lacks the symbols of without.
func newFake(t testing.TB, without ...string) *fake {
	t.Helper()
	if !dynlib.Supported {
		t.Skip("no CUDA driver here: its library is used on Linux only")
	}
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no C compiler here: the fake driver library cannot be built")
	}
	image, err := compiled()
	must(t, err)
	for _, symbol := range without {
		image = withoutSymbol(t, image, symbol)
	}
	f := &fake{TB: t, path: filepath.Join(t.TempDir(), "libcuda.so.1")}
	must(t, os.WriteFile(f.path, image, 0o700))
	f.handle, err = dynlib.Open(f.path)
	must(t, err)
	return f
}

// withoutSymbol renames a symbol in the table of names, so that it is not found.
func withoutSymbol(t testing.TB, image []byte, symbol string) []byte {
	t.Helper()
	name := "\x00" + symbol + "\x00"
	if !bytes.Contains(image, []byte(name)) {
		t.Fatalf("the fake has no symbol %s", symbol)
	}
	return bytes.Replace(image, []byte(name), []byte("\x00X"+symbol[1:]+"\x00"), 1)
}

// control calls a function of the fake's own.
func (f *fake) control(function string, args ...uintptr) uint64 {
	f.Helper()
	fn := dynlib.Symbol(f.handle, function)
	if fn == 0 {
		f.Fatalf("the fake has no function %s", function)
	}
	r, _, _ := purego.SyscallN(fn, args...)
	return uint64(r)
}

// named is control with a name as the first argument.
func (f *fake) named(function, name string, args ...uintptr) uint64 {
	f.Helper()
	text := append([]byte(name), 0)
	defer runtime.KeepAlive(&text[0])
	return f.control(function, append([]uintptr{uintptr(unsafe.Pointer(&text[0]))}, args...)...)
}

func (f *fake) set(key string, value int) { f.named("fake_set", key, uintptr(value)) }
func (f *fake) fail(symbol string, k, code int) {
	f.named("fake_fail", symbol, uintptr(k), uintptr(code))
}
func (f *fake) calls(symbol string) int         { return int(f.named("fake_calls", symbol)) }
func (f *fake) arg(symbol string, i int) uint64 { return f.named("fake_arg", symbol, uintptr(i)) }
func (f *fake) hold(s driver.Stream, on int)    { f.control("fake_hold", uintptr(s), uintptr(on)) }
func (f *fake) current() uint64                 { return f.control("fake_current") }

// books counts what is alive: contexts (retained), pools, streams, events,
// blocks, host blocks, modules, graphs, graphs to launch, reserved ranges of
// addresses, handles of memory.
func (f *fake) books() (b [11]uint64) {
	for kind := range b {
		b[kind] = f.control("fake_live", uintptr(kind))
	}
	return b
}

func (f *fake) load() *libcuda.Library {
	f.Helper()
	l, err := libcuda.LoadPath(f.path)
	must(f, err)
	return l
}

// open opens device 0 and closes it at the end of the test.
func (f *fake) open() *libcuda.Device {
	f.Helper()
	d, err := f.load().Open(0)
	must(f, err)
	f.Cleanup(func() { must(f, d.Close()) })
	return d
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// fails requires a driver error of op with code.
func fails(t testing.TB, err error, op string, code int) {
	t.Helper()
	_ = driverError(t, err, op, code)
}

// driverError is fails for those who look at the rest of it.
func driverError(t testing.TB, err error, op string, code int) *core.DriverError {
	t.Helper()
	var e *core.DriverError
	if !errors.As(err, &e) || e.Op != op || e.Code != code {
		t.Fatalf("got %v, want a driver error of %s with code %d", err, op, code)
	}
	return e
}

// ptx is what the fake takes for code: it knows kernels by their names.
var ptx = []byte(".version 7.4\n.entry fencepost_fill() .entry fencepost_verify() .entry fake_echo3() .entry fake_echo40()")

func image(string) driver.Image { return driver.Image{PTX: ptx} }

// result calls a function whose first argument is where it puts a result.
func (f *fake) result(function string, args ...uintptr) uint64 {
	f.Helper()
	out := new(uint64)
	sink = out // on the heap: C gets no address on a stack
	f.control(function, append([]uintptr{uintptr(unsafe.Pointer(out))}, args...)...)
	return *out
}

var sink *uint64
