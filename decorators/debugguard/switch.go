package debugguard

import (
	"context"
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
)

// Mode is the mode now.
func (r *Resource) Mode() Mode { return Mode(r.word.Load() & modeMask) }

// Setting is the mode now with its options.
func (r *Resource) Setting() Setting {
	s := settingOf(r.word.Load())
	if s.Mode != Hunt {
		s.Bisect, s.Delay, s.Unmap = false, false, false
	}
	mean, lifted := r.bytes.mean.Load(), r.throttle.off.Load() && r.cfg.SampleRate > 0
	if s.Mode == Sample && (lifted || mean != r.cfg.SampleBytes) {
		s.SampleBytes = mean
	}
	return s
}

// hunting reports whether the mode is Hunt with an option.
func (r *Resource) hunting(o options) bool {
	w := r.word.Load()
	return Mode(w&modeMask) == Hunt && w&uint32(o) != 0
}

// SetMode changes the mode from the next operation on, and leaves its options
// as they were. Turning the device guard off (Off, Ledger) empties the
// quarantine; blocks that are guarded then stay usable and are freed
// unchecked. No block is lost and no false finding raised by a change. It does
// not block on the device, except over an upstream without use tracking. The
// error says which mode is unknown, or which frees failed: those stay in
// quarantine and are tried again. After Close it matches [core.ErrClosed]; a
// change that was under way then has left blocks in quarantine.
func (r *Resource) SetMode(ctx context.Context, m Mode) error {
	if m > Hunt {
		return &core.InvalidRequestError{Op: "debugguard.SetMode", Field: "mode", Reason: m.String() + ": use Off, Ledger, Sample or Hunt"}
	}
	r.switching.Lock()
	defer r.switching.Unlock()
	if err := r.refuseClosed("SetMode"); err != nil {
		return err
	}
	return r.switchTo(ctx, r.word.Load()&^uint32(modeMask)|uint32(m))
}

// Apply changes mode and options from the next operation on, all at once for
// every operation that begins later. It is SetMode in all other respects.
func (r *Resource) Apply(ctx context.Context, s Setting) error {
	if err := s.check(); err != nil {
		return err
	}
	r.switching.Lock()
	defer r.switching.Unlock()
	if err := r.refuseClosed("Apply"); err != nil {
		return err
	}
	if s.Mode == Sample {
		r.sampleBy(s.SampleBytes)
	}
	return r.switchTo(ctx, s.word())
}

func (r *Resource) refuseClosed(op string) error {
	if r.closed.Load() {
		return fmt.Errorf("debugguard.%s refused: the guard is %w", op, core.ErrClosed)
	}
	return nil
}

// switchTo makes w the mode and its options; switching must be held.
func (r *Resource) switchTo(ctx context.Context, w uint32) error {
	from, to := r.Mode(), Mode(w&modeMask)
	turnedOn := from == Off && to != Off
	turnedOff := from != Off && to == Off
	deviceGuardOff := from >= Sample && to < Sample
	huntOver := from == Hunt && to == Sample

	if turnedOn {
		r.ledger.Unseen.Store(uint64(core.NextGeneration()))
		r.ledger.Clock.Start()
		r.gate.Add(1)
		r.ledger.CountLive(false)
	}
	r.word.Store(w)
	if turnedOff {
		r.seals.clear()
		r.ledger.CountLive(true)
		r.gate.Add(-1)
		r.ledger.Clock.Stop()
	}
	switch {
	case deviceGuardOff:
		return r.flush(ctx, r.closed.Load)
	case huntOver: // sampling has less quarantine
		r.evicting.Lock()
		_, err := r.trimCanaries(ctx, 0, r.closed.Load)
		r.evicting.Unlock()
		if !r.closed.Load() {
			r.enforceLimit(ctx, 0)
		}
		return err
	}
	return nil
}

// SetSampleBytes changes the mean number of bytes between guarded blocks in
// mode Sample, whatever Config.SampleRate says; zero means
// [DefaultSampleBytes], within that bound.
func (r *Resource) SetSampleBytes(mean uint64) {
	r.sampleBy(mean)
	if mean == 0 {
		r.bytes.setMean(DefaultSampleBytes)
	}
}

// SampleBytes is the mean number of bytes between guarded blocks in mode
// Sample.
func (r *Resource) SampleBytes() uint64 { return r.bytes.mean.Load() }
