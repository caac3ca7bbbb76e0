package fencepost

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/fencepost-gpu/fencepost/internal/deadline"
	"github.com/fencepost-gpu/fencepost/internal/kmsg"
	"github.com/fencepost-gpu/fencepost/internal/usercode"
)

// kernelLogPath is the kernel's log, and xidPatience how long the driver's line on a lost device is waited for, which may come after the
// error. Tests replace them.
var (
	kernelLogPath = kmsg.Path
	xidPatience   = time.Second
)

// kernelLog is the kernel's log as [Config.KernelLog] says.
type kernelLog struct {
	// state is what [GuardStatus] says.
	state string
	log   *kmsg.Log // nil if it is not read
}

func (r *Runtime) openKernelLog(cfg Config) {
	r.kernelLog.state = "off"
	if !cfg.KernelLog {
		return
	}
	log, err := kmsg.Open(kernelLogPath)
	if err != nil {
		r.kernelLog.state = "not readable: " + err.Error()
		usercode.Logger(cmp.Or(cfg.Findings.Logger, slog.Default())).Warn("fencepost: the kernel's log is not readable",
			"error", err)
		return
	}
	r.kernelLog = kernelLog{"read", log}
}

// closeKernelLog ends a reading of it, and waits until the finding is told.
func (r *Runtime) closeKernelLog(ctx context.Context) error {
	if r.kernelLog.log == nil {
		return nil
	}
	return errors.Join(r.kernelLog.log.Close(), deadline.AtLeastAMoment(r.reporter.Wait)(ctx))
}

// xids is what the kernel's log says of the device.
func (r *Runtime) xids() string {
	if r.device.PCIBusID == "" {
		return "its Xids are not known: the driver does not tell the device's PCI bus id"
	}
	return kmsg.Tell(r.kernelLog.log.Xids(r.device.PCIBusID, xidPatience), kmsg.HostPID())
}
