package debugguard

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
)

// Resource is the guard. It is safe for concurrent use.
type Resource struct {
	upstream core.Resource
	cfg      Config
	// tracked is whether the upstream fences uses.
	tracked bool
	// orderer is the backend's word on what is ordered before what, nil if
	// it has none.
	orderer core.Orderer

	// gate is zero when there is nothing to do: the mode is Off, no block is
	// known and no verdict is awaited. It is what every operation loads
	// first. Each mode but Off, each block known and each comparison under
	// way adds one.
	gate atomic.Int64
	mode atomic.Uint32
	// switching serialises SetMode.
	switching sync.Mutex
	hunted    atomic.Pointer[[]core.Tag]
	bytes     sampler // which blocks are guarded

	ledger     *ledger
	accused    accusations
	open       tickets
	launches   launchLog
	quarantine quarantine
	// evicting is held while blocks leave quarantine, so that who empties it
	// knows that it is empty. The launch path only tries to take it.
	evicting sync.Mutex
	checks   checks

	listeners listeners
	deferred  tally // freed by the caller, kept by an open intent
	meter     meter
	count     counters
}

var (
	_ core.Resource  = (*Resource)(nil)
	_ core.Inspector = (*Resource)(nil)
)

// New guards upstream. The error is a [core.InvalidRequestError].
func New(upstream core.Resource, cfg Config) (*Resource, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(upstream); err != nil {
		return nil, err
	}
	r := &Resource{upstream: upstream, cfg: cfg, tracked: upstream.Features().Has(core.UseTracking)}
	r.ledger = newLedger(&r.gate, cfg)
	r.checks.gate = &r.gate
	r.orderer, _ = core.Find[core.Orderer](upstream)
	r.launches.resize(cfg.Launches)
	r.bytes.setMean(cfg.SampleBytes)
	r.HuntTags(cfg.HuntTags...)
	upstream.Subscribe(notices{r})
	if err := r.SetMode(context.Background(), cfg.Mode); err != nil {
		return nil, err
	}
	return r, nil
}

// Mode is the mode now.
func (r *Resource) Mode() Mode { return Mode(r.mode.Load()) }

// SetMode changes the mode from the next operation on. Turning the device
// guard off (Off, Ledger) empties the quarantine; blocks that are guarded
// then stay usable and are freed unchecked. No block is lost and no false
// finding raised by a change. It does not block on the device, except over an
// upstream without use tracking. The error says which mode is unknown, or
// which frees failed: those stay in quarantine and are tried again.
func (r *Resource) SetMode(ctx context.Context, m Mode) error {
	if m > Hunt {
		return &core.InvalidRequestError{Op: "debugguard.SetMode", Field: "mode", Reason: m.String() + ": use Off, Ledger, Sample or Hunt"}
	}
	r.switching.Lock()
	defer r.switching.Unlock()
	was := r.Mode()
	if !r.meter.heldBack.Load() && was < Sample && m >= Sample || was == Off && m != Off && r.gate.Load() == 0 {
		r.meter.rebase(r.upstream.Stats())
	}
	if was == Off && m != Off {
		r.ledger.unseen.Store(uint64(core.NextGeneration()))
		r.ledger.clock.start()
		r.gate.Add(1)
		r.ledger.countLive(false)
	}
	r.mode.Store(uint32(m))
	if was != Off && m == Off {
		r.ledger.countLive(true)
		r.gate.Add(-1)
		r.ledger.clock.stop()
	}
	if was >= Sample && m < Sample {
		return r.Flush(ctx)
	}
	return nil
}

// SetSampleBytes changes the mean number of bytes between guarded blocks in
// mode Sample; zero means [DefaultSampleBytes].
func (r *Resource) SetSampleBytes(mean uint64) {
	r.bytes.setMean(orDefault(mean, DefaultSampleBytes))
}

// HuntTags replaces the set of hunted tags: in mode Sample every block of
// them is guarded and poisoned whole, and in every mode but Off their stacks
// are kept.
func (r *Resource) HuntTags(tags ...core.Tag) {
	tags = slices.Clone(tags)
	r.hunted.Store(&tags)
}

func (r *Resource) hunts(tag core.Tag) bool { return slices.Contains(*r.hunted.Load(), tag) }

// String is "debugguard(upstream)".
func (r *Resource) String() string { return "debugguard(" + r.upstream.String() + ")" }

// Ordinal is the upstream's device.
func (r *Resource) Ordinal() int { return r.upstream.Ordinal() }

// Features is the upstream's, and [core.DeviceChecks] if the guard has device
// operations: that feature originates here and nowhere below.
func (r *Resource) Features() core.Features {
	f := r.upstream.Features() &^ core.DeviceChecks
	if r.cfg.Device != nil {
		f |= core.DeviceChecks
	}
	return f
}

// Unwrap is the upstream.
func (r *Resource) Unwrap() core.Resource { return r.upstream }

// FreedOn is the upstream's odometer. A quarantined block is not in it yet.
func (r *Resource) FreedOn(id core.StreamID) core.Odometer { return r.upstream.FreedOn(id) }

// Reserve is the upstream's. The guard's own overhead is never drawn from a
// claim.
func (r *Resource) Reserve(ctx context.Context, bytes uint64, tag core.Tag) (core.Claim, error) {
	return r.upstream.Reserve(ctx, bytes, tag)
}

// ReleaseClaim is the upstream's.
func (r *Resource) ReleaseClaim(ctx context.Context, id core.ClaimID) error {
	return r.upstream.ReleaseClaim(ctx, id)
}
