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

// What stands for the stream where a call names none.
const (
	// inContext is for a call that is of the current context.
	inContext driver.Stream = 0
	// byHandle is for a call that names an event or a pool, which say the context.
	byHandle = ^driver.Stream(0)
)

// do makes a call; s is the stream that it names.
func (d *Device) do(e entry, s driver.Stream, args ...uintptr) error {
	f := newFrame(args...)
	return d.end(f, d.invoke(e, s, f))
}

// get is do for a call whose result goes to where its first argument says; args are the
// others.
func (d *Device) get(e entry, s driver.Stream, args ...uintptr) (uint64, error) {
	return d.result(e, s, newResultFrame(args...))
}

// ofStream is get for a call that names the stream first, and then where its result goes.
func (d *Device) ofStream(e entry, s driver.Stream) (uint64, error) {
	f := newFrame(uintptr(s))
	f.c.Args[1] = f.result(0)
	return d.result(e, s, f)
}

// result makes the call that is prepared in f, and gives f back.
func (d *Device) result(e entry, s driver.Stream, f *frame) (uint64, error) {
	code := d.invoke(e, s, f)
	result := f.out[0]
	return result, d.end(f, code)
}

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
	f.ctx.Fn, f.ctx.Args[0] = d.library.addresses[cuCtxPushCurrent], d.context
	ccall.Call(&f.ctx)
	return int(uint32(f.ctx.Ret))
}

// pop cannot fail in a way that matters: the context was pushed just before,
// and an error of earlier work comes from the next call too.
func (d *Device) pop(f *frame) {
	f.ctx.Fn, f.ctx.Args[0] = d.library.addresses[cuCtxPopCurrent], uintptr(unsafe.Pointer(&f.popped))
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

// query is do for a question: not ready is an answer and no error.
func (d *Device) query(e entry, s driver.Stream, handle uintptr) (bool, error) {
	f := newFrame(handle)
	code := d.invoke(e, s, f)
	if code == driver.NotReady {
		f.release()
		return false, nil
	}
	err := d.unlessFaulting(e, d.end(f, code))
	return err == nil, err
}
