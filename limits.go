package fencepost

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core/readings"
	"github.com/fencepost-gpu/fencepost/internal/deadline"
	"github.com/fencepost-gpu/fencepost/internal/limits"
	"github.com/fencepost-gpu/fencepost/internal/nvml"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

// memoryLimits are the limits that others set on the device's memory, as last read.
type memoryLimits struct {
	reader *limits.Reader // nil on the simulated device
	// free and total are the device's in the first reading.
	free, total uint64
	last        atomic.Pointer[[]readings.MemoryLimit]
}

// MemoryLimits are the limits that others than the program set on the memory that it takes of the GPU,
// as they were last read, with the device's memory: of control groups and of MPS. The budget is never
// above the least of them. There are none where none was found, and on the simulated device; see
// docs/configuration.md. It makes no device call, and the slice is the caller's.
func (r *Runtime) MemoryLimits() []readings.MemoryLimit {
	if last := r.orNone().limits.last.Load(); last != nil {
		return slices.Clone(*last)
	}
	return nil
}

// exhausted names a limit of which nothing is left; empty if there is none.
func (r *Runtime) exhausted() string {
	for _, l := range r.MemoryLimits() {
		if l.Used >= l.Bytes {
			return l.Name
		}
	}
	return ""
}

// openLimits makes ready to read the limits.
func (r *Runtime) openLimits() {
	var ofGroup func(string) (limit, used uint64, ok bool)
	if lib := nvml.OpenLimits(r.device.UUID); lib != nil {
		r.onClose(func(ctx context.Context) error {
			return deadline.Within(ctx, func() error { lib.Close(); return nil })
		})
		ofGroup = lib.Of
	}
	r.limits.reader = limits.New(limits.Device{Ordinal: r.device.Ordinal, PCIBusID: r.device.PCIBusID}, ofGroup)
}

// limited is a backend whose device's memory is read together with what others allow of it.
type limited struct {
	of metrics.Backend
	rt *Runtime
}

// limitTries is how often both are read until the limits are the same before and after.
const limitTries = 4

// bounds are what [budget.Resource.SetBounds] is told.
type bounds struct {
	available, others uint64
	by                string
}

// read reads both. Where they do not stand still, the reading that allows more counts: one that saw
// memory come, and not that it is the runtime's own, would have requests refused.
func (l limited) read() (free, total, owned uint64, b bounds, err error) {
	for try := 1; ; try++ {
		before := l.rt.limits.reader.Read()
		if free, total, owned, err = l.of.DeviceMemory(); err != nil {
			return 0, 0, 0, b, err
		}
		after := l.rt.limits.reader.Read()
		same := slices.Equal(before, after)
		if same || try == limitTries {
			least := limits.Allow(after, owned)
			if old := limits.Allow(before, owned); old.Allowed > least.Allowed {
				least, after = old, before
			}
			l.rt.limits.last.Store(&after)
			return free, total, owned, bounds{l.rt.limits.available(total), least.Allowed, least.Name}, nil
		}
	}
}

// available is the default budget while the device tells that total. It does not follow what is free; the
// total changes with a limit on the process's own control group.
func (m *memoryLimits) available(total uint64) uint64 {
	first := m.free - limits.Headroom(m.free)
	return max(1, first+total-min(first+total, m.total)) // 0 would be no budget
}

// DeviceMemory is the backend's, and has the budget follow.
func (l limited) DeviceMemory() (free, total, owned uint64, err error) {
	free, total, owned, b, err := l.read()
	if err == nil {
		l.rt.budget.SetBounds(b.available, b.others, b.by)
	}
	return free, total, owned, err
}

// Drift is the backend's.
func (l limited) Drift() (readings.Drift, error) { return l.of.Drift() }

// limit is what the budget's limit is within these bounds, own being what was set; 0 is nothing.
func (b bounds) limit(own uint64) uint64 {
	return min(cmp.Or(own, b.available), cmp.Or(b.others, math.MaxUint64))
}

// budgetLimit is the limit that was set, on the simulated device else its memory, and what bounds it.
func (r *Runtime) budgetLimit(cfg Config) (own uint64, b bounds, err error) {
	if r.gpu {
		r.openLimits()
		if r.limits.free, r.limits.total, err = r.driver.MemInfo(); err != nil {
			return 0, b, err
		}
		_, _, _, b, err = limited{r.backend, r}.read()
		return cfg.Budget, b, err
	}
	if cfg.Budget > 0 {
		return cfg.Budget, b, nil
	}
	_, b.available, err = r.driver.MemInfo()
	return 0, b, err
}

// setShare has the backend hold no more of the device than the budget's limit, where one is set.
func (r *Runtime) setShare(bytes uint64) {
	pieces := uint64(0)
	if bytes > 0 {
		pieces = jobPieces
	}
	r.inside.pieces.Store(pieces)
	if r.pool != nil {
		r.pool.SetShare(bytes)
	}
}
