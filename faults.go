package fencepost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/faultdump"
	"github.com/fencepost-gpu/fencepost/internal/findings"
	"github.com/fencepost-gpu/fencepost/internal/gpucore"
)

// FaultMode is whether faults of kernels are named.
type FaultMode string

// The modes.
const (
	// FaultsOff leaves a fault to the driver, which says that there was one.
	FaultsOff FaultMode = "off"
	// FaultsNamed makes the driver dump what the GPU did: see [Config.Faults].
	FaultsNamed FaultMode = "name"
)

// faults are the core dumps of a device that a runtime takes.
type faults struct {
	// state is what [GuardStatus] says.
	state string
	watch *faultdump.Watch // nil if none come
	// enqueued are the kernels that may fault, nil without a watch.
	enqueued *findings.Enqueued
	// dump and err are there when the watch is done.
	dump *gpucore.Dump
	err  error
}

// dumping is a device that is yet to be opened and can write core dumps: a GPU, or a simulated one.
type dumping struct {
	inHunts bool // a hunt arms it without being told
	arm     func(file string) error
	disarm  func() error
	open    func() (watched, error)
}

type watched interface {
	driver.Driver
	WatchFaults(begun func() bool, launched func(l *driver.Launch, kernel string)) error
}

// armFaults asks a device for core dumps, before its context is made.
func (r *Runtime) armFaults(d dumping, cfg Config) (armed bool) {
	r.faults.state = string(FaultsOff)
	guard, _ := debugguard.ParseMode(string(cfg.Guard)) // which was checked
	if cfg.Faults == FaultsOff || cfg.Faults == "" && (guard.Mode != debugguard.Hunt || !d.inHunts) {
		return false
	}
	w, err := faultdump.Open(r.readFault)
	if err == nil {
		if err = d.arm(w.Path()); err != nil {
			err = errors.Join(err, w.Close(context.Background()))
		}
	}
	if err != nil {
		r.faults.state = "not armed: " + err.Error()
		if cfg.Faults != "" {
			slog.Warn("faults of kernels are not named", "error", err)
		}
		return false
	}
	r.faults.state, r.faults.watch = "armed", w
	r.onClose(func(ctx context.Context) error { return errors.Join(d.disarm(), w.Close(ctx)) })
	return true
}

// openArmed opens a device.
func (r *Runtime) openArmed(d dumping, cfg Config) (driver.Driver, error) {
	armed := r.armFaults(d, cfg)
	device, err := d.open()
	if err != nil {
		return nil, err
	}
	if armed {
		r.faults.enqueued = new(findings.Enqueued)
		if err = device.WatchFaults(r.faults.watch.Begun, r.enqueued); err != nil {
			return nil, errors.Join(err, device.Close())
		}
	}
	return device, nil
}

// enqueued notes a kernel. Those of before there are streams are of no launch.
func (r *Runtime) enqueued(l *driver.Launch, kernel string) {
	if r.streams != nil {
		r.faults.enqueued.Note(r.streams, l, kernel)
	}
}

// readFault reads the dump of the first fault. The device is lost from its first byte on.
func (r *Runtime) readFault(from io.Reader) {
	if r.built.Load() {
		r.core.ReportSticky("kernel", driver.NewFault("kernel"))
	}
	r.faults.dump, r.faults.err = gpucore.Read(from)
}

// faultDump returns what waits for a dump that has begun, or nil.
func (r *Runtime) faultDump() func(context.Context) (*gpucore.Dump, error) {
	w := r.faults.watch
	if w == nil || !w.Begun() {
		return nil
	}
	return func(ctx context.Context) (*gpucore.Dump, error) {
		select {
		case <-w.Done():
			return r.faults.dump, r.faults.err
		case <-ctx.Done():
			return nil, fmt.Errorf("its core dump is not at its end: %w", ctx.Err())
		}
	}
}
