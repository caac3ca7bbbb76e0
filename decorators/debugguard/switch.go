package debugguard

import (
	"context"
	"fmt"
	"slices"

	"github.com/fencepost-gpu/fencepost/core"
)

// rules are what an operation goes by, in one word that it loads and that changes
// seldom. They are never written to: a change puts others in their place.
type rules struct {
	// setting is mode and options, which callers see change at once; its SampleBytes is
	// not used.
	setting Setting
	hunted  []core.Tag
	// sampling is how blocks are chosen, rates has it for tags with a mean of their own.
	sampling rate
	rates    map[core.Tag]rate
	// unbounded is set while no number of blocks in a second bounds what bytes choose.
	unbounded bool
}

// hunts reports whether blocks of a tag are hunted.
func (u *rules) hunts(tag core.Tag) bool {
	return u.setting.Mode == Hunt || slices.Contains(u.hunted, tag)
}

// alter changes the rules for the operations that begin later.
func (r *Resource) alter(change func(*rules)) {
	for {
		old := r.rules.Load()
		altered := *old
		change(&altered)
		if r.rules.CompareAndSwap(old, &altered) {
			r.path.Altered()
			return
		}
	}
}

// Mode is the mode now.
func (r *Resource) Mode() Mode { return r.rules.Load().setting.Mode }

// Setting is the mode now with its options.
func (r *Resource) Setting() Setting {
	now := r.rules.Load()
	s := now.setting
	if s.Mode != Hunt {
		s = Setting{Mode: s.Mode}
	}
	mean, lifted := now.sampling.mean, now.unbounded && r.cfg.Advanced.SampleRate > 0
	if s.Mode == Sample && (lifted || mean != r.cfg.SampleBytes) {
		s.SampleBytes = mean
	}
	return s
}

// hunting is the options in force: none unless the mode is Hunt.
func (r *Resource) hunting() Setting {
	if u := r.rules.Load(); u.setting.Mode == Hunt {
		return u.setting
	}
	return Setting{}
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
	return r.change(ctx, "SetMode", func() {}, func(now Setting) Setting { now.Mode = m; return now })
}

// Apply changes mode and options from the next operation on, all at once for
// every operation that begins later. It is SetMode in all other respects.
func (r *Resource) Apply(ctx context.Context, s Setting) error {
	return r.Change(ctx, Change{Setting: &s})
}

// Change says what to change of the guard. A field that is nil changes nothing.
type Change struct {
	Setting *Setting
	// SampleBytes is what [Resource.SetSampleBytes] takes. It stands for that of a Setting of mode
	// Sample.
	SampleBytes *uint64
	// HuntTags are what [Resource.HuntTags] takes.
	HuntTags *[]core.Tag
}

// Change does what c says, so that of two changes at a time one comes before the other. It is Apply
// in all other respects.
func (r *Resource) Change(ctx context.Context, c Change) error {
	var setting func(Setting) Setting
	if c.Setting != nil {
		s := *c.Setting
		if s.Mode == Sample && c.SampleBytes != nil {
			s.SampleBytes, c.SampleBytes = *c.SampleBytes, nil
		}
		if err := s.check(); err != nil {
			return err
		}
		setting = func(Setting) Setting {
			if s.Mode == Sample {
				r.sampleBy(s.SampleBytes)
			}
			return s
		}
	}
	return r.change(ctx, "Change", func() {
		if c.HuntTags != nil {
			r.HuntTags(*c.HuntTags...)
		}
		if c.SampleBytes != nil {
			r.SetSampleBytes(*c.SampleBytes)
		}
	}, setting)
}

// change does what first says, and makes mode and options what next says of those now; nil leaves
// them.
func (r *Resource) change(ctx context.Context, op string, first func(), next func(now Setting) Setting) error {
	r.changes.begin()
	defer r.changes.end()
	fewer, err := r.setRules(op, first, next)
	if err != nil || !fewer {
		return err
	}
	r.seals.awaitQueued(ctx)
	return r.letExcessGo(ctx)
}

// setRules is change without letting blocks go, and reports whether fewer may be in quarantine now.
func (r *Resource) setRules(op string, first func(), next func(now Setting) Setting) (fewer bool, err error) {
	r.switching.Lock()
	defer r.switching.Unlock()
	if r.closed() {
		return false, fmt.Errorf("debugguard.%s refused: the guard is %w", op, core.ErrClosed)
	}
	first()
	if next == nil {
		return false, nil
	}
	return r.switchTo(next(r.rules.Load().setting)), nil
}

// switchTo makes s the mode and its options, and reports whether fewer blocks may be in quarantine
// now; switching must be held.
func (r *Resource) switchTo(s Setting) (fewer bool) {
	from, to := r.Mode(), s.Mode
	turnedOn, turnedOff := from == Off && to != Off, from != Off && to == Off
	if turnedOn {
		r.ledger.Unseen.Store(uint64(core.NextGeneration()))
		r.gate.Add(1)
		r.ledger.CountLive(false)
	}
	s.SampleBytes = 0 // which sampling has
	r.alter(func(u *rules) { u.setting = s })
	if turnedOff {
		r.seals.clear()
		r.ledger.CountLive(true)
		r.gate.Add(-1)
	}
	return to < from || to < Sample
}

// letExcessGo lets go what the mode does not keep, and what an earlier change could not free.
func (r *Resource) letExcessGo(ctx context.Context) error {
	mine := r.evicting.await(ctx)
	defer func() { r.evicting.giveBack(mine) }()
	err := r.shrink(ctx, 0, r.closed)
	if r.hasUpkeep() { // what could not be freed, or another call has, is tried again
		r.upkeep.wake()
	}
	return err
}

// SetSampleBytes changes the mean number of bytes between guarded blocks in
// mode Sample, whatever Config.SampleRate says; zero means
// [DefaultSampleBytes], within that bound.
func (r *Resource) SetSampleBytes(mean uint64) {
	r.sampleBy(mean)
	if mean == 0 {
		r.alter(func(u *rules) { u.sampling = rateOf(DefaultSampleBytes) })
	}
}

// SampleBytes is the mean number of bytes between guarded blocks in mode
// Sample.
func (r *Resource) SampleBytes() uint64 { return r.rules.Load().sampling.mean }

// ctxMutex is a lock for which a caller waits no longer than its context lasts,
// because its holder may be waiting for the device. A sync.Mutex cannot do
// that.
type ctxMutex chan struct{}

func newCtxMutex() ctxMutex { return make(ctxMutex, 1) }

// lock fails only if the lock is not free and ctx ends.
func (m ctxMutex) lock(ctx context.Context) error {
	if m.tryLock() { // also if ctx has ended
		return nil
	}
	select {
	case m <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m ctxMutex) tryLock() bool {
	select {
	case m <- struct{}{}:
		return true
	default:
		return false
	}
}

func (m ctxMutex) unlock() { <-m }
