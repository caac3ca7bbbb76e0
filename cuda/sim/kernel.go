package sim

import (
	"fmt"
	"math"
	"slices"
	"time"
	"unsafe"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// Kernel is a kernel as a Go function.
type Kernel struct {
	// Name is what driver.ModuleFunction finds it by.
	Name string
	// Declare returns the ranges that a launch with these arguments may
	// touch. It is called by Launch, on the caller's goroutine. Nil declares
	// nothing.
	Declare func(a Args) []Range
	// Indirect says that the kernel finds addresses in device memory, so
	// that Declare cannot list them. What it touches beyond Declare is then
	// judged by order alone and is not [Undeclared].
	Indirect bool
	// Run is the kernel. It reaches device bytes through x alone, keeps
	// neither x nor what it returned, and does not call the device. It runs
	// on a goroutine of the device's; with a seeded schedule a call waits for it.
	// A panic is a failed launch, and so is runtime.Goexit, which FailNow of
	// a test calls: the context is lost with CUDA_ERROR_LAUNCH_FAILED, and a
	// finding says so.
	Run func(x *Exec)
	// Takes is how long a launch with these arguments takes where time is virtual
	// (see [Seeded]); nil means 10 µs. It is called by Launch, as Declare is.
	Takes func(a Args) time.Duration

	guard bool // of driver.GuardImage, which no program can make
}

// Args are the arguments of a launch, by index from 0; errors count them from 1, as those of
// a launch do. Reading one that is missing, or as a
// type of another size, panics; Launch then returns CUDA_ERROR_INVALID_VALUE
// or the kernel fails.
type Args []driver.Arg

// Len is the number of arguments.
func (a Args) Len() int { return len(a) }

func (a Args) bits(i int, size uint8) uint64 {
	if i < 0 || i >= len(a) {
		panic(fmt.Sprintf("argument %d of %d (index %d of Args) was read: pass it in Launch.Args", i+1, len(a), i)) //nolint:forbidigo // recovered
	}
	if a[i].Size != size {
		panic(fmt.Sprintf("argument %d (index %d of Args) has %d bytes and was read as %d", i+1, i, a[i].Size, size)) //nolint:forbidigo // recovered
	}
	return a[i].Bits
}

// Ptr is argument i as a device address.
func (a Args) Ptr(i int) uint64 { return a.bits(i, 8) }

// U64 is argument i as a 64-bit unsigned number.
func (a Args) U64(i int) uint64 { return a.bits(i, 8) }

// U32 is argument i as a 32-bit unsigned number.
func (a Args) U32(i int) uint32 { return uint32(a.bits(i, 4)) }

// I32 is argument i as a 32-bit signed number.
func (a Args) I32(i int) int32 { return int32(uint32(a.bits(i, 4))) }

// F32 is argument i as a 32-bit floating-point number.
func (a Args) F32(i int) float32 { return math.Float32frombits(uint32(a.bits(i, 4))) }

// F64 is argument i as a 64-bit floating-point number.
func (a Args) F64(i int) float64 { return math.Float64frombits(a.bits(i, 8)) }

// module is device code: kernels by name, and, once loaded, the handles of
// those that were looked up.
type module struct {
	kernels map[string]*Kernel
	handles map[string]driver.Function
}

// RegisterModule makes kernels available under an image's name, as loading
// code with driver.Image.Name does not bring any along. Registering a name
// again replaces it for later loads. After Close it is an error.
func (d *Device) RegisterModule(image string, kernels ...Kernel) error {
	m := &module{kernels: make(map[string]*Kernel, len(kernels))}
	for _, k := range kernels {
		if k.Name == "" || k.Run == nil {
			return &core.InvalidRequestError{Op: "RegisterModule", Field: "kernels",
				Reason: fmt.Sprintf("kernel %q of the code %q lacks a Name or a Run function", names.Bound(k.Name),
					names.Bound(image))}
		}
		k.Name = names.Bound(k.Name)
		m.kernels[k.Name] = &k
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() {
		return d.state(mModuleLoad)
	}
	d.images[names.Bound(image)] = m
	return nil
}

// ModuleLoad finds the kernels registered under the image's name.
func (d *Device) ModuleLoad(image driver.Image) (driver.Module, error) {
	if err := d.begin(mModuleLoad); err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	m := d.images[names.Bound(image.Name)]
	if m == nil {
		return 0, fault(mModuleLoad, driver.InvalidImage,
			fmt.Sprintf("no kernels are registered for image %q: this device runs kernels in Go, so pass them to fencepost's Runtime.Load, or register them with RegisterModule first", names.Bound(image.Name)))
	}
	loaded := &module{kernels: m.kernels, handles: make(map[string]driver.Function)}
	return d.modules.put(loaded), nil
}

// ModuleUnload unloads a module; its functions are invalid afterwards.
func (d *Device) ModuleUnload(h driver.Module) error {
	if err := d.begin(mModuleUnload); err != nil {
		return err
	}
	defer d.mu.Unlock()
	m, err := d.modules.take(mModuleUnload, h)
	if err != nil {
		return err
	}
	for _, f := range m.handles {
		_, _ = d.functions.take(mModuleUnload, f)
	}
	return nil
}

// ModuleFunction looks a kernel up.
func (d *Device) ModuleFunction(h driver.Module, name string) (driver.Function, error) {
	m, err := lockNamed(d, mModuleFunction, &d.modules, h)
	if err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	name = names.Bound(name)
	if f, known := m.handles[name]; known {
		return f, nil
	}
	k := m.kernels[name]
	if k == nil {
		return 0, fault(mModuleFunction, driver.NotFound, fmt.Sprintf("the module has no kernel %q", name))
	}
	f := d.functions.put(k)
	m.handles[name] = f
	return f, nil
}

// Exec is one run of a kernel. Device bytes are reached through it, so that
// the oracle knows the ranges really touched. It belongs to the run's
// goroutine and ends with it, and so do the slices that it returns.
type Exec struct {
	// Grid and Block are the launch's sizes, at least 1 in each dimension.
	Grid, Block driver.Dim

	d       *Device
	args    []driver.Arg
	touches []Range // what a kernel has done, or what a fill or copy does
	takes   time.Duration
}

// Args are the launch's arguments.
func (x *Exec) Args() Args { return x.args }

// Read returns n bytes at ptr to be read. Reaching outside mapped memory ends
// the kernel with CUDA_ERROR_ILLEGAL_ADDRESS, here as in the other accessors.
func (x *Exec) Read(ptr, n uint64) []byte { return x.reach(Reads(ptr, n)) }

// Write returns n bytes at ptr to be overwritten without being read.
func (x *Exec) Write(ptr, n uint64) []byte { return x.reach(Writes(ptr, n)) }

// ReadWrite returns n bytes at ptr to be read and written.
func (x *Exec) ReadWrite(ptr, n uint64) []byte { return x.reach(ReadWrites(ptr, n)) }

func (x *Exec) reach(r Range) []byte {
	if r.Bytes == 0 {
		return nil
	}
	b, ok := x.d.reach(r.Ptr, r.Bytes)
	if !ok {
		panic(faulted{r}) //nolint:forbidigo // recovered
	}
	x.note(r)
	return b
}

// note remembers a touch; one that continues or repeats the last of its kind
// is joined with it, so that loops stay cheap. One that begins at another argument is apart: it was
// made from another pointer.
func (x *Exec) note(r Range) {
	for i := len(x.touches) - 1; i >= 0 && i >= len(x.touches)-4; i-- {
		t := &x.touches[i]
		if t.Access == r.Access && r.Ptr >= t.Ptr && r.Ptr <= t.Ptr+t.Bytes && (r.Ptr == t.Ptr || !x.isArgument(r.Ptr)) {
			t.Bytes = max(t.Bytes, r.Ptr+r.Bytes-t.Ptr)
			return
		}
	}
	x.touches = append(x.touches, r)
}

// isArgument reports whether an address is one of the arguments.
func (x *Exec) isArgument(ptr uint64) bool { return isArgument(x.args, ptr) }

func isArgument(args []driver.Arg, ptr uint64) bool {
	return slices.ContainsFunc(args, func(a driver.Arg) bool { return a.Bits == ptr && a.Size == 8 })
}

// Number is an element type that device and Go share.
type Number interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64
}

// ReadSlice returns n elements at ptr to be read.
func ReadSlice[T Number](x *Exec, ptr uint64, n int) []T { return slice[T](x, ptr, n, core.Read) }

// WriteSlice returns n elements at ptr to be overwritten without being read.
func WriteSlice[T Number](x *Exec, ptr uint64, n int) []T { return slice[T](x, ptr, n, core.Write) }

// ReadWriteSlice returns n elements at ptr to be read and written.
func ReadWriteSlice[T Number](x *Exec, ptr uint64, n int) []T {
	return slice[T](x, ptr, n, core.ReadWrite)
}

func slice[T Number](x *Exec, ptr uint64, n int, access core.Access) []T {
	size := uint64(unsafe.Sizeof(*new(T)))
	if n < 0 || ptr%size != 0 {
		panic(fmt.Sprintf("%d elements of %d bytes at %#x: the count must not be negative and the address must be a multiple of the size", n, size, ptr)) //nolint:forbidigo // recovered
	}
	if n == 0 {
		return nil
	}
	if uint64(n) > x.d.config.Bytes*vaFactor/size {
		panic(faulted{Range{ptr, uint64(n), access}}) //nolint:forbidigo // recovered
	}
	b := x.reach(Range{ptr, uint64(n) * size, access})
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n)
}
