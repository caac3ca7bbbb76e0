package sim

import (
	"fmt"
	"slices"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// Launch enqueues a kernel and does not block. Declare of the kernel runs on
// the caller's goroutine.
func (d *Device) Launch(l *driver.Launch) error {
	k, err := lockNamed(d, mLaunch, &d.functions, l.Function)
	if err != nil {
		return err
	}
	d.mu.Unlock()
	declared, err := declare(k, l.Args)
	if err != nil {
		return err
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
	if s.capture != nil {
		return d.record(mLaunch, s, o, declared)
	}
	for _, r := range declared {
		o.uses = d.resolve(o.uses, r, o.exec.args)
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

// declare asks the kernel what a launch touches.
func declare(k *Kernel, args []driver.Arg) (ranges []Range, err error) {
	if k.Declare == nil {
		return nil, nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = fault(mLaunch, driver.InvalidValue, fmt.Sprintf("Declare of kernel %q panicked: %v", k.Name, p))
		}
	}()
	return slices.Clone(k.Declare(Args(args))), nil
}

// faulted is the panic by which an accessor leaves a kernel that reached for
// memory that is not mapped.
type faulted struct{ r Range }

// runKernel runs a launch and hands what it touched to the oracle.
func (d *Device) runKernel(o *op) {
	d.callKernel(o)
	for _, t := range o.exec.touches {
		d.judge(o, t)
	}
	if o.kernel.Indirect {
		d.indirect.Add(-1)
	}
}

func (d *Device) callKernel(o *op) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case faulted:
			d.illegal(o, p.r)
		default:
			if r, ok := d.taken(o, p); ok {
				d.illegal(o, r)
				return
			}
			d.kernelPanic(o, p)
		}
	}()
	o.kernel.Run(&o.exec)
}
