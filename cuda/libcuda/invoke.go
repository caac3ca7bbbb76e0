package libcuda

import (
	"runtime"
	"unsafe"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/libcuda/internal/ccall"
)

// Streams that are not handles of their own: the legacy default stream, under
// its two names, and the default stream of each thread mean those of the
// current context.
// They are 0, CU_STREAM_LEGACY (1) and CU_STREAM_PER_THREAD (2).
const perThreadStream driver.Stream = 2

// noStream is for calls that name an event or a pool, which say the context.
const noStream = ^driver.Stream(0)

// invoke calls e with the arguments of f, without the context pushed
// if it may: s is the stream that the call names.
//
// A refusal that may be for want of the right context is put to the test with
// the context pushed. The driver refuses before it does anything, so the
// second call is not a repetition.
func (d *Device) invoke(e entry, s driver.Stream, f *frame) int {
	if s <= perThreadStream || d.mode.Load() != modeFree {
		return d.bound(e, f)
	}
	code := d.library.relaxed(e, f)
	if code != driver.InvalidContext && code != driver.InvalidHandle {
		return code
	}
	again := d.bound(e, f)
	if f.entry != e { // the context could not be pushed: the first answer holds
		f.entry = e
		return code
	}
	if again != code {
		d.mode.CompareAndSwap(modeFree, modeBind)
	}
	return again
}

// bound calls e with the context current. The thread is locked meanwhile, as
// the context is the thread's; one that another library made current is
// current again afterwards.
func (d *Device) bound(e entry, f *frame) int {
	if d.mode.Load() == modeClosed {
		f.entry = e
		return driver.Deinitialized
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if code := d.push(f); code != codeSuccess {
		return code
	}
	code := d.library.relaxed(e, f)
	d.pop(f)
	return code
}

func (d *Device) push(f *frame) int {
	f.entry = cuCtxPushCurrent
	f.ctx.Fn, f.ctx.Args[0] = d.library.functions[cuCtxPushCurrent], d.context
	ccall.Call(&f.ctx)
	return int(uint32(f.ctx.Ret))
}

// pop cannot fail in a way that matters: the context was pushed just before,
// and an error of earlier work comes from the next call too.
func (d *Device) pop(f *frame) {
	f.ctx.Fn, f.ctx.Args[0] = d.library.functions[cuCtxPopCurrent], uintptr(unsafe.Pointer(&f.popped))
	ccall.Call(&f.ctx)
}

// end gives the frame back and returns the error of the call, nil for
// success.
func (d *Device) end(f *frame, code int) error {
	e := f.entry
	f.release()
	if code == codeSuccess {
		return nil
	}
	return d.library.fail(e, code)
}

// done is end for queries: not ready is an answer and no error.
func (d *Device) done(f *frame, code int) (bool, error) {
	if code == driver.NotReady {
		f.release()
		return false, nil
	}
	return code == codeSuccess, d.end(f, code)
}
