package libcuda

import (
	"unsafe"

	"github.com/fencepost-gpu/fencepost/cuda/libcuda/internal/ccall"
)

// Other code in the process may capture a stream in the global mode, which
// is the default of CUDA's. A call that CUDA calls potentially unsafe, made on
// any thread, then fails and invalidates that capture: an event query of the
// reaper's would break a capture that has nothing to do with it. So every such
// call is made in the relaxed mode, which is the thread's, and the thread has its
// former mode again afterwards: three calls in one crossing into C.

// captureRelaxed is CU_STREAM_CAPTURE_MODE_RELAXED.
const captureRelaxed = 2

// relaxed calls e with the arguments of f, in the relaxed capture mode if that
// may matter. If the mode cannot be had nothing is called.
func (l *Library) relaxed(e entry, f *frame) int {
	exchange := l.addresses[cuThreadExchangeStreamCaptureMode]
	if functions[e].enqueues || exchange == 0 || l.addresses[e] == 0 {
		return l.call(e, f)
	}
	f.captureMode = captureRelaxed
	for _, swap := range []*ccall.Frame{&f.ctx, &f.back} {
		swap.Fn, swap.Args[0] = exchange, uintptr(unsafe.Pointer(&f.captureMode))
	}
	f.ctx.Must, f.ctx.Next, f.c.Next = true, &f.c, &f.back
	f.entry, f.c.Fn = e, l.addresses[e]
	ccall.Call(&f.ctx)
	f.ctx.Must, f.ctx.Next, f.c.Next = false, nil, nil
	if code := int(uint32(f.ctx.Ret)); code != codeSuccess {
		f.entry = cuThreadExchangeStreamCaptureMode
		return code
	}
	return int(uint32(f.c.Ret))
}
