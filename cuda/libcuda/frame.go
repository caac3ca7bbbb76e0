package libcuda

import (
	"sync"
	"unsafe"

	"github.com/fencepost-gpu/fencepost/cuda/libcuda/internal/ccall"
)

// frame is what one call hands to C: the arguments, words for results, and
// what keeps Go memory reachable meanwhile. Frames live on the heap because C
// gets their addresses and stacks move; they are pooled so that a call
// allocates nothing.
type frame struct {
	// entry is the function whose code the call returned: the one asked for,
	// or cuCtxPushCurrent if that failed before it.
	entry entry
	c     ccall.Frame
	// ctx and popped are of push and pop, so that c and out stay as they are;
	// ctx and back are of what goes before and behind a relaxed call.
	ctx, back ccall.Frame
	popped    uint64
	// captureMode is the thread's before it was made relaxed.
	captureMode uint64
	out         [2]uint64
	// keep is Go memory that C reads or writes. Being stored here it is
	// reachable until the frame is given back, and on the heap.
	keep unsafe.Pointer
	// bits and params are a kernel's arguments and their addresses.
	bits   []uint64
	params []uintptr
}

var frames = sync.Pool{New: func() any { return new(frame) }}

// newFrame returns a frame with the first arguments of a call.
func newFrame(args ...uintptr) *frame {
	f := frames.Get().(*frame)
	copy(f.c.Args[:], args)
	return f
}

// newResultFrame returns a frame for a call whose first argument is where the result
// goes, with the arguments that follow.
func newResultFrame(args ...uintptr) *frame {
	f := newFrame()
	f.c.Args[0] = f.result(0)
	copy(f.c.Args[1:], args)
	return f
}

// release gives the frame back. Nothing of it may be used afterwards.
func (f *frame) release() {
	f.keep = nil
	frames.Put(f)
}

// result is the address of result i for C, cleared before.
func (f *frame) result(i int) uintptr {
	f.out[i] = 0
	return uintptr(unsafe.Pointer(&f.out[i]))
}

// host keeps p reachable and returns its address for C.
func (f *frame) host(p unsafe.Pointer) uintptr {
	f.keep = p
	return uintptr(p)
}

// Codes of CUresult that this package itself needs, and one of its own.
const (
	codeSuccess = 0
	// codeMissing stands for a call of a function that the library lacks.
	codeMissing = 0xffffffff
)

// call calls e with the arguments of f and returns its code.
func (l *Library) call(e entry, f *frame) int {
	f.entry = e
	fn := l.addresses[e]
	if fn == 0 {
		return codeMissing
	}
	f.c.Fn = fn
	ccall.Call(&f.c)
	return int(uint32(f.c.Ret))
}

// get makes a call whose result goes to where its first argument says; args are the
// others. No context is needed for it.
func (l *Library) get(e entry, args ...uintptr) (uint64, int) {
	f := newResultFrame(args...)
	defer f.release()
	code := l.call(e, f)
	return f.out[0], code
}

// cString reads a string of C's that stays where it is.
func cString(address uint64) string {
	p := *(*unsafe.Pointer)(unsafe.Pointer(&address))
	if p == nil {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}
