package sim

import (
	"fmt"
	"path/filepath"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/legible"
)

// Launch enqueues a kernel and does not block. Declare of the kernel runs on
// the caller's goroutine.
func (d *Device) Launch(l *driver.Launch) error {
	k, err := lockNamed(d, mLaunch, &d.functions, l.Function)
	if err != nil {
		return err
	}
	d.mu.Unlock()
	if refusal := driver.CheckSizes(l.Grid, l.Block); refusal != "" {
		return fault(mLaunch, driver.InvalidValue, refusal)
	}
	declared, takes, err := declare(k, l.Args)
	if err != nil {
		return err
	}
	if d.watch.launched != nil { // before it can fault
		d.watch.launched(l, k.Name)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.state(mLaunch); err != nil {
		return err
	}
	s, err := d.streams.named(mLaunch, l.Stream)
	if err != nil {
		return err
	}
	d.catchUp(s)
	o := newOp(opLaunch, k.Name)
	o.kernel = k
	o.exec.d, o.exec.Grid, o.exec.Block = d, atLeastOne(l.Grid), atLeastOne(l.Block)
	o.exec.args = append(o.exec.args, l.Args...)
	o.exec.takes = takes
	if s.capture != nil {
		return d.record(mLaunch, s, o, declared)
	}
	for _, r := range declared {
		o.uses = d.resolve(s, o, o.uses, r)
	}
	d.enqueue(s, o)
	return nil
}

// enqueue queues an operation. While an indirect launch is queued no block
// that was freed is forgotten.
func (d *Device) enqueue(s *stream, o *op) {
	if o.kernel != nil && o.kernel.Indirect {
		d.indirect.Add(1)
	}
	d.push(s, o)
}

func atLeastOne(dim driver.Dim) driver.Dim {
	return driver.Dim{X: max(dim.X, 1), Y: max(dim.Y, 1), Z: max(dim.Z, 1)}
}

// declare asks the kernel what a launch touches, and how long it takes.
func declare(k *Kernel, args []driver.Arg) (ranges []Range, takes time.Duration, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fault(mLaunch, driver.InvalidValue, fmt.Sprintf("Declare of kernel %q panicked: %s", k.Name,
				legible.Text(fmt.Sprint(p))))
		}
	}()
	if takes = k.takes(args); k.Declare == nil {
		return nil, takes, nil
	}
	return slices.Clone(k.Declare(Args(args))), takes, nil
}

// faulted is the panic by which an accessor leaves a kernel that reached for
// memory that is not mapped.
type faulted struct{ r Range }

// runKernel runs a launch and hands what it touched to the oracle, whatever ends the kernel. In the
// seeded schedule the goroutine is the caller's, which runtime.Goexit of a kernel must not end.
func (d *Device) runKernel(o *op) {
	defer d.judgeKernel(o)
	if d.chooser == nil {
		d.callKernel(o)
		return
	}
	apart(func() {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(d.memory.arena.pages.revokes))
		d.callKernel(o)
	})
}

func (d *Device) judgeKernel(o *op) {
	for _, writes := range [...]bool{true, false} { // of one bug the write is told
		for _, t := range o.exec.touches {
			if t.Access.Writes() == writes {
				d.judge(o, t)
			}
		}
	}
	if o.kernel.Indirect {
		d.indirect.Add(-1)
	}
}

// callKernel calls the kernel. A panic of it ends here. runtime.Goexit goes on and ends the
// goroutine: see [Device.serve].
func (d *Device) callKernel(o *op) {
	returned := false
	defer func() {
		switch p := recover().(type) {
		case nil:
			if !returned {
				d.kernelFailed(o, "called runtime.Goexit, as t.Fatal does", "")
			}
		case faulted:
			d.illegal(o, p.r)
		default:
			if r, ok := d.taken(o, p); ok {
				d.illegal(o, r)
				return
			}
			d.kernelFailed(o, "panicked", fmt.Sprint(": ", p))
		}
	}()
	o.kernel.Run(&o.exec)
	returned = true
}

// apart calls the program's code and returns when that has returned, or has ended its goroutine.
func apart(f func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f()
	}()
	<-ended
}

// loss is why the context was lost: the code that every later call gets, and in
// words what a GPU would not say, empty if that is all. work is what did it, nil if that is not known.
type loss struct {
	code int
	why  string
	work *Work
}

// err is the error of every call from now on.
func (l *loss) err(m *method) error {
	err := driver.NewError(m.entry, l.code)
	if launch := l.work.launch(); launch.LaunchID != 0 {
		err.Faulted = &launch
	}
	return withDetail(err, l.detail())
}

func (l *loss) detail() string {
	if l.why == "" {
		return "the context was lost before; open a new device"
	}
	return "the context was lost before: " + l.why + "; open a new device"
}

// fail takes the context with a sticky error; the first one stays.
func (d *Device) fail(code int, why string, work *Work) {
	d.lost.CompareAndSwap(nil, &loss{code, why, work})
}

// kernelFailed takes the context for a kernel that did not return: did is how it ended, and with
// the value of a panic.
func (d *Device) kernelFailed(o *op, did, with string) {
	stack := make([]byte, 4<<10)
	stack = stack[:runtime.Stack(stack, false)]
	with = legible.Text(with)
	f := Finding{Kind: KernelPanic, First: Party{Op: o.name, Stream: o.stream, Number: o.now.seq, Guard: o.kernel.guard,
		Work: o.work}}
	f.Text = fmt.Sprintf("%s: kernel %s on stream %#x %s%s\n%s", KernelPanic, o.name, uint64(o.stream), did, with, stack)
	d.file(f, nil, did+with)
	d.fail(driver.LaunchFailed, fmt.Sprintf("kernel %q %s%s%s%s", o.name, did, unwound(), with, o.enqueued()), o.work)
}

// unwound is where the panic or Goexit began that ends the kernel, as " at file:line": in the
// kernel, even if it was an accessor that panicked, or a test's FailNow that ended the goroutine.
func unwound() string {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs[:])])
	began := false
	for {
		f, more := frames.Next()
		switch {
		case f.Function == "runtime.gopanic", f.Function == "runtime.Goexit":
			began = true
		case began && !strings.HasPrefix(f.Function, "runtime.") && !strings.HasPrefix(f.Function, "testing.") &&
			!isAccessor(f):
			return fmt.Sprintf(" at %s:%d", filepath.Base(f.File), f.Line)
		}
		if !more {
			return ""
		}
	}
}

func isAccessor(f runtime.Frame) bool {
	return strings.HasPrefix(f.Function, reflect.TypeFor[Exec]().PkgPath()+".") && !strings.HasSuffix(f.File, "_test.go")
}

// reached says of an operation that it went where nothing is mapped.
func (o *op) reached(r Range) string {
	return fmt.Sprintf("%s touched memory at %#x (%d bytes), where nothing is mapped%s",
		o.name, r.Ptr, r.Bytes, o.enqueued())
}

// enqueued says which launch enqueued the operation, and where, to go behind what it did.
func (o *op) enqueued() string {
	if where := o.work.Where(); where != "" {
		return "; it was enqueued " + where
	}
	return ""
}

// runRevocable runs an entry where memory that is given back must not be
// touched (pages.revokes). An unmap and a shrinking pool wait for nothing, so
// they may take the memory from under an operation that nothing orders before
// them. That is then an access of memory that is not mapped, as on a device.
func (d *Device) runRevocable(o *op) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		r, ok := d.taken(o, p)
		if !ok {
			panic(p) //nolint:forbidigo // repanic
		}
		d.illegal(o, r)
	}()
	d.perform(o)
}

// taken finds what an operation touched whose panic is a fault on the device's
// bytes, or on those of the device that it copies from.
func (d *Device) taken(o *op, panicked any) (r Range, ok bool) {
	fault, ok := panicked.(interface{ Addr() uintptr })
	if !ok {
		return r, false
	}
	ptr, ok := d.addressOf(fault.Addr())
	if !ok && o.peer != nil {
		ptr, ok = o.peer.addressOf(fault.Addr())
	}
	if !ok {
		return r, false
	}
	for _, r := range slices.Backward(o.exec.touches) {
		if ptr >= r.Ptr && ptr-r.Ptr < r.Bytes {
			return r, true
		}
	}
	return Range{ptr, 1, core.Read}, true
}

// addressOf is the device's address of a byte of its memory.
func (d *Device) addressOf(byteAt uintptr) (ptr uint64, ok bool) {
	for _, h := range d.heaps() {
		if ptr, ok = h.arena.holds(byteAt); ok {
			return ptr, true
		}
	}
	return 0, false
}
