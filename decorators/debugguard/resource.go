package debugguard

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/ledger"
	"github.com/fencepost-gpu/fencepost/internal/listeners"
	"github.com/fencepost-gpu/fencepost/internal/path"
)

// Resource is the guard. It is safe for concurrent use.
type Resource struct {
	// foundBelow: layers beneath look for memory themselves.
	foundBelow bool
	upstream   core.Resource
	// uses is whom it calls for launches: the upstream, or who that would pass them on to.
	uses path.Uses
	cfg  Config
	// tracked is whether the upstream fences uses, granule the unit in which it
	// isolates blocks; 0 if it does not.
	tracked bool
	granule uint64
	// ordinal is the upstream's, which asks every layer below for it.
	ordinal int
	// opened is when the throttle began to count.
	opened time.Time
	// lanes counts those that draw by Advanced.SampleSeed.
	lanes atomic.Uint64
	// below is what the upstream knows of blocks and streams.
	below     core.Inspector
	inspector *inspector

	// gate is zero when there is nothing to do: the mode is Off, no block is
	// known and no verdict is awaited. It is what every operation loads
	// first. Each mode but Off, each block known and each comparison under
	// way adds one.
	gate  atomic.Int64
	rules atomic.Pointer[rules]
	// switching is held while the rules are changed, changes are the calls that do so and then let
	// blocks go.
	switching sync.Mutex
	changes   underWay
	// throttle bounds what bytes choose.
	throttle throttle

	ledger   *ledger.Ledger
	accused  accusations
	launches launchLog
	// watches hear of the launches that may write, and of those that only read.
	watches    [2]watching
	quarantine quarantine
	// evicting is the turn to let blocks go. The launch path only tries to take it.
	evicting turn
	checks   checks
	upkeep   upkeep
	// canaries are what a hunt puts where blocks were.
	canaries canaries
	seals    seals

	listeners listeners.List
	givenUp   tally // for callers
	forwarded forwardedFrees
	// blockedFrees are those of blocks that an open intent uses.
	blockedFrees tally
	count        counters

	path *path.Path
	// preparing is held while a lane gets its shard of the ledger.
	preparing sync.Mutex
	records   *path.Records
}

var _ core.Resource = (*Resource)(nil)

// New guards upstream. The error is a [core.InvalidRequestError].
func New(upstream core.Resource, cfg Config) (*Resource, error) {
	sized := cfg.QuarantineBytes != 0
	cfg = cfg.withDefaults()
	if err := cfg.check(upstream); err != nil {
		return nil, err
	}
	r := &Resource{upstream: upstream, uses: path.UsesOf(upstream), below: upstream.Inspect(), cfg: cfg, tracked: upstream.Features().Has(core.UseTracking), ordinal: upstream.Ordinal(), opened: cfg.Advanced.Now()}
	r.watches = [...]watching{{r: r}, {r: r, readsOnly: true}}
	below := path.Over(upstream, true)
	r.path = below.Extend(r, share{r}, share{r}.ordinary())
	r.joinRoom()
	records, part := path.Join[ledger.Part](below, upstream)
	r.records = records
	r.ledger = ledger.New(&r.gate, records, part, cfg.Advanced.Tombstones)
	r.inspector = &inspector{r.below, r.ledger, &r.canaries, r.ordinal}
	r.checks.gate, r.checks.reading = &r.gate, newCtxMutex()
	r.upkeep.begin(cfg.upkeepInterval(), newTimer(r, (*Resource).tick))
	if upstream.Features().Has(core.Isolation) {
		r.granule = r.below.IsolationGranularity()
	}
	r.quarantine.sampled.Store(cfg.QuarantineBytes)
	if !sized { // it follows the peak
		r.quarantine.sampled.Store(min(cfg.QuarantineBytes, MinQuarantineBytes))
	}
	r.launches.resize(cfg.Advanced.Launches)
	r.throttle.perSecond = uint64(min(max(cfg.Advanced.SampleRate, 0), 1<<30))
	r.rules.Store(&rules{})
	r.sampleBy(0)
	r.HuntTags(cfg.HuntTags...)
	r.records.Subscribe(upstream, path.Listener{Hear: r.released})
	start := Setting{Mode: cfg.Mode, Bisect: cfg.Advanced.Hunt.Bisect, Delay: cfg.Advanced.Hunt.Delay > 0, Unmap: cfg.Advanced.Hunt.Unmap}
	r.switchTo(start)
	return r, nil
}

// HuntTags replaces the set of hunted tags: in mode Sample every block of
// them is guarded and poisoned whole, and in every mode but Off their stacks
// are kept.
func (r *Resource) HuntTags(tags ...core.Tag) {
	tags = slices.Clone(tags)
	for i := range tags {
		tags[i] = tags[i].OrUntagged()
	}
	r.alter(func(u *rules) { u.hunted = tags })
}

// HuntedTags is the set of hunted tags. The slice is the caller's.
func (r *Resource) HuntedTags() []core.Tag { return slices.Clone(r.rules.Load().hunted) }

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

// FreedOn is the upstream's free counters. A quarantined block is not in them yet.
func (r *Resource) FreedOn(id core.StreamID) core.FreeCounters { return r.upstream.FreedOn(id) }

// ReleaseClaim is the upstream's.
func (r *Resource) ReleaseClaim(ctx context.Context, id core.ClaimID) error {
	return r.upstream.ReleaseClaim(ctx, id)
}

// Subscribe adds a listener. It hears of a block when the upstream releases
// it, as the guard's callers know it: after its quarantine, with the caller's
// pointer and size.
func (r *Resource) Subscribe(l core.Listener) { r.listeners.Add(l) }

// released hears of a block that the upstream has released, whichever layer freed it: it closes
// the block's record, and tells the guard's own listeners of what its owner knew.
func (r *Resource) released(of *path.Record, b core.Block) {
	if rec := r.canaries.released(b.ID.Generation); rec != nil {
		r.noteReleased(rec)
		return
	}
	if r.gate.Load() != 0 {
		r.seals.remove(r.seals.get(b.ID.Generation))                              // compared or not
		if rec := r.ledger.CloseBlock(of, b.ID); rec != nil && rec.Guard != nil { // which is not used again
			r.noteReleased(rec)
			b.ID, b.Bytes = rec.ID(), rec.Bytes
		}
	}
	r.listeners.Released(of, b)
}
