package libcuda

import (
	"runtime"
	"unsafe"

	"github.com/fencepost-gpu/fencepost/cuda/libcuda/internal/ccall"
)

// Somebody else in the process may capture a stream in the global mode, which
// is the default of CUDA's. A call that CUDA calls potentially unsafe, made on
// any thread, then fails and invalidates that capture: an event query of the
// reaper's would break a capture that has nothing to do with it. So every such
// call is made in the relaxed mode, which is the thread's: the thread is locked
// while it is, and has its former mode again afterwards.

// captureRelaxed is CU_STREAM_CAPTURE_MODE_RELAXED.
const captureRelaxed = 2

// enqueues marks the calls that do nothing but enqueue on the stream that they
// name, or ask about it: a capture elsewhere is not concerned. CUDA does not list
// what it calls unsafe; all other calls are taken to be.
var enqueues = [entryCount]bool{
	cuMemAllocFromPoolAsync: true, cuMemFreeAsync: true,
	cuMemsetD8Async: true, cuMemcpyHtoDAsync: true, cuMemcpyDtoHAsync: true, cuMemcpyDtoDAsync: true, cuMemcpyPeerAsync: true,
	cuStreamWaitEvent: true, cuEventRecord: true, cuLaunchKernel: true, cuGraphLaunch: true,
	cuStreamIsCapturing: true, cuStreamGetID: true, cuStreamBeginCapture: true, cuStreamEndCapture: true,
}

// relaxed calls e with the arguments of f, in the relaxed capture mode if that
// may matter. If the mode cannot be had nothing is called.
func (l *Library) relaxed(e entry, f *frame) int {
	if enqueues[e] || !l.has(cuThreadExchangeStreamCaptureMode) {
		return l.call(e, f)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	f.captureMode = captureRelaxed
	if code := l.exchangeMode(f); code != codeSuccess {
		return code
	}
	code := l.call(e, f)
	l.exchangeMode(f) // cannot fail where the first did not
	f.entry = e
	return code
}

// exchangeMode swaps the thread's mode with the frame's.
func (l *Library) exchangeMode(f *frame) int {
	f.entry = cuThreadExchangeStreamCaptureMode
	f.ctx.Fn, f.ctx.Args[0] = l.functions[f.entry], uintptr(unsafe.Pointer(&f.captureMode))
	ccall.Call(&f.ctx)
	return int(uint32(f.ctx.Ret))
}
