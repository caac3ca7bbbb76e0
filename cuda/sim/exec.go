package sim

import (
	"fmt"
	"unsafe"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// Exec is one run of a kernel. Device bytes are reached through it, so that
// the oracle knows the ranges really touched. It belongs to the run's
// goroutine and ends with it, and so do the slices that it returns.
type Exec struct {
	// Grid and Block are the launch's sizes, at least 1 in each dimension.
	Grid, Block driver.Dim

	d       *Device
	args    []driver.Arg
	touches []Range // what a kernel has done, or what a fill or copy does
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
	if !x.d.isMapped(r.Ptr, r.Bytes) {
		panic(faulted{r}) //nolint:forbidigo // recovered
	}
	x.note(r)
	return x.d.bytes(r.Ptr, r.Bytes)
}

// note remembers a touch; one that continues or repeats the last of its kind
// is joined with it, so that loops stay cheap.
func (x *Exec) note(r Range) {
	for i := len(x.touches) - 1; i >= 0 && i >= len(x.touches)-4; i-- {
		t := &x.touches[i]
		if t.Access == r.Access && r.Ptr >= t.Ptr && r.Ptr <= t.Ptr+t.Bytes {
			t.Bytes = max(t.Bytes, r.Ptr+r.Bytes-t.Ptr)
			return
		}
	}
	x.touches = append(x.touches, r)
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
