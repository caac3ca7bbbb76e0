package debugguard

import (
	"cmp"
	"context"
	"math"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/deviceops"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
)

// Defaults of [Config].
const (
	DefaultRedZone             uint64        = 256
	DefaultQuarantineBytes     uint64        = 64 << 20
	MinQuarantineBytes         uint64        = 16 << 20
	DefaultHuntQuarantineBytes uint64        = 1 << 30
	DefaultQuarantineAge       time.Duration = 10 * time.Second
	DefaultSampleBytes         uint64        = 64 << 20
	DefaultSampleRate                        = 200
	DefaultStackBytes          uint64        = 512 << 10
	DefaultPoisonCap           uint64        = 1 << 20
	DefaultTombstones                        = 16384
	DefaultLaunches                          = 4096
	DefaultSuspects                          = 16
	DefaultDelay               time.Duration = 100 * time.Microsecond
	DefaultCanaries                          = 384
	DefaultPatience            time.Duration = time.Second
)

// Config is how a guard is built. The zero value is a guard that is off, has
// no device, and can be switched to Ledger.
type Config struct {
	// Mode is the mode at the start; see [Resource.SetMode].
	Mode Mode
	// Device fills and compares bytes. Nil leaves only the ledger, whatever
	// the mode.
	Device deviceops.Ops
	// Findings takes what the guard finds. Nil discards it; it is counted all the
	// same. It must be safe for concurrent use and must not call the guard.
	Findings func(core.Finding)
	// QuarantineBytes is the device memory that quarantine may hold. Over
	// it, the oldest blocks leave until an eighth is free, so that they are
	// compared in batches. A block that alone is larger is not quarantined.
	// Zero means what sampling may take without being noticed: 0.4 % of Memory, at
	// most DefaultQuarantineBytes, and at most a sixteenth of the most that callers
	// have had at a time, or MinQuarantineBytes if that is more.
	QuarantineBytes uint64
	// QuarantineAge is how long a block stays at most, looked at in the background
	// and in ReapPending. Zero means DefaultQuarantineAge, a negative value no limit.
	QuarantineAge time.Duration
	// SampleBytes is the mean number of bytes between guarded blocks in mode
	// Sample. Zero means DefaultSampleBytes.
	SampleBytes uint64
	// HuntTags are the tags hunted at the start; see [Resource.HuntTags].
	HuntTags []core.Tag
	// Advanced is what few programs set; its zero value is right for most.
	Advanced Advanced
}

// Advanced is the part of [Config] for those who tune the guard or build a stack by hand.
type Advanced struct {
	// Refuse makes the guard refuse a misuse that a call can refuse, where it
	// only reports it otherwise: a read of what was never written, a pointer into a
	// block that the launch does not declare, a use that bypassed the fences,
	// a write to a sealed block. Work on freed blocks is refused in any case.
	Refuse bool
	// Hunt is what mode Hunt does beyond guarding every block. Bisect, Delay
	// and Unmap are what it begins with; see [Resource.Apply].
	Hunt HuntConfig
	// RedZone is the bytes watched on each side of a guarded block, at
	// least. The left side is rounded up to keep the block's alignment, the
	// right side takes the rounding slack. Where that is 16 bytes or more, the
	// right side of a sampled block of a tag that is not hunted makes do with
	// it, unless RedZone is larger than the alignment. Zero means
	// DefaultRedZone.
	RedZone uint64
	// Patience is how long a request that would be refused waits in all for the device to
	// come to memory that is freed, as long as some is on its way that may make room, and no
	// longer than its context. It holds for the whole stack, below the guard, too. Zero means
	// DefaultPatience, a negative value that no request waits.
	Patience time.Duration
	// UpkeepInterval is how often ages and verdicts are looked at in the
	// background, while anything is in quarantine or a verdict is awaited, ten
	// times as often for the verdicts. Zero means a twentieth of QuarantineAge,
	// at least 10 ms and at most a second. A negative value means that nothing is
	// done in the background: what was found is told by ReapPending and Drain.
	UpkeepInterval time.Duration
	// Memory is how many bytes there are to be had, a device's or a budget's, whichever
	// is less. It sizes the default quarantine. Zero means that it is plenty.
	Memory uint64
	// SampleRate bounds the blocks that mode Sample guards in a second. What it
	// leaves out is counted in GuardStats.Skipped. A program that allocates
	// SampleBytes faster than that has a smaller share of its blocks guarded, and
	// pays no more for it: that of a block is SampleRate in as many as are chosen
	// in a second by their bytes. Blocks of a tag with a mean of its own and
	// hunted ones are never left out, nor is any after Apply or SetSampleBytes
	// gave a mean. Zero means DefaultSampleRate, or no bound if SampleBytes is
	// given; a negative value is no bound.
	SampleRate int
	// SampleSeed, if not 0, draws which blocks are chosen by their bytes: a run whose streams
	// allocate the same, in an order that is the same, has the same blocks guarded. 0 draws anew in
	// each run.
	SampleSeed uint64
	// StackBytes is the mean number of bytes between allocations whose
	// stacks are kept for other reasons than being guarded or of 1 MiB and
	// more. Zero means DefaultStackBytes.
	StackBytes uint64
	// PoisonCap is the size in bytes above which a block is poisoned only at
	// its first, middle and last words, except in mode Hunt or for a hunted
	// tag. Zero means DefaultPoisonCap.
	PoisonCap uint64
	// Tombstones is how many freed blocks the ledger remembers, and Launches
	// how many recent launches are kept as suspects. Suspects is how many of
	// them a finding names at most. Zero means the default of each.
	Tombstones, Launches, Suspects int
	// Now is the clock of quarantine ages and findings. Nil means that of the uses.
	Now func() time.Time
	// Events takes refusals, one event for each: those that the guard cured, as
	// relieved, and those of a budget below that it passed on. That budget asks for
	// no sink then. Nil discards them.
	Events oplog.Sink
	// Span, if not nil, is the span in force in a context, whether or not it is
	// sampled. It is asked where stacks are kept, which is dearer, and of recorded
	// uses that may become suspects; launches bring theirs ([core.UseRequest.Span]).
	// It must not block. Nil means that findings say nothing of the requests
	// that blocks were allocated and freed in.
	Span func(context.Context) core.SpanContext
	// BeginStep, if not nil, shows those waits in traces: see cuda.StreamPoolConfig.
	BeginStep func(ctx context.Context, s oplog.Step) (end func(err error))
	// OnStack, if not nil, is told of each block whose stack of the allocation
	// is kept, when it is allocated: the bytes that the layers below were asked
	// for, red zones included. It must not block, call the guard, or change the
	// stack.
	OnStack func(bytes uint64, tag core.Tag, stack core.Stack)
}

// HuntConfig is how mode Hunt looks for what guarding alone does not show.
type HuntConfig struct {
	// Bisect compares, after every launch, its own blocks' red zones and what
	// else is watched, so that a finding's window holds that launch and those
	// that ran beside it. The end of a launch waits where more than 64 verdicts
	// are awaited, for a second at most: the program runs at the pace of the
	// comparisons.
	Bisect bool
	// Delay is the mean length of the delays that a random quarter of the
	// launches begin with on the device, behind the waits queued for them, so
	// that an order that only luck kept shows. Zero means none at the start,
	// and DefaultDelay once [Resource.Apply] asks for delays.
	Delay time.Duration
	// DelaySeed draws which launches are delayed and for how long.
	DelaySeed uint64
	// QuarantineBytes takes the place of Config.QuarantineBytes in mode Hunt.
	// Zero means that, or if that is zero too a sixteenth of Config.Memory, at most
	// DefaultHuntQuarantineBytes.
	QuarantineBytes uint64
	// Canaries is how many small blocks, filled with a pattern, at most take
	// the place of blocks that were freed. Zero means DefaultCanaries,
	// negative none.
	Canaries int
	// Unmap asks the upstream for isolated blocks (core.Request.Isolated): a
	// late access of one faults and takes the context, so this is for a process
	// that may be lost. One that the upstream cannot give is quarantined like
	// any other, and counted in GuardStats.NotIsolated.
	Unmap bool
}

// quarantineShare is the part of what callers have had at most, one byte in so many, that
// a default quarantine may hold while sampling.
const quarantineShare = 16

// quarantineFor is the quarantine for so many bytes of memory that sampling may cost
// without being noticed, and the larger one for a hunt.
func quarantineFor(memory uint64) (sample, hunt uint64) {
	memory = cmp.Or(memory, math.MaxUint64)
	return max(1, min(DefaultQuarantineBytes, memory/250)), max(1, min(DefaultHuntQuarantineBytes, memory/16))
}

// withDefaults fills in what was left zero.
func (c Config) withDefaults() Config {
	c.Advanced.RedZone = cmp.Or(c.Advanced.RedZone, DefaultRedZone)
	if c.QuarantineBytes == 0 {
		sample, hunt := quarantineFor(c.Advanced.Memory)
		c.QuarantineBytes, c.Advanced.Hunt.QuarantineBytes = sample, cmp.Or(c.Advanced.Hunt.QuarantineBytes, hunt)
	}
	c.Advanced.Hunt.QuarantineBytes = cmp.Or(c.Advanced.Hunt.QuarantineBytes, c.QuarantineBytes)
	c.QuarantineAge = cmp.Or(c.QuarantineAge, DefaultQuarantineAge)
	if c.Advanced.SampleRate == 0 && c.SampleBytes != 0 {
		c.Advanced.SampleRate = -1
	}
	c.Advanced.SampleRate = cmp.Or(c.Advanced.SampleRate, DefaultSampleRate)
	c.SampleBytes = cmp.Or(c.SampleBytes, DefaultSampleBytes)
	c.Advanced.StackBytes = cmp.Or(c.Advanced.StackBytes, DefaultStackBytes)
	c.Advanced.PoisonCap = cmp.Or(c.Advanced.PoisonCap, DefaultPoisonCap)
	c.Advanced.Tombstones = cmp.Or(c.Advanced.Tombstones, DefaultTombstones)
	c.Advanced.Launches = cmp.Or(c.Advanced.Launches, DefaultLaunches)
	c.Advanced.Suspects = cmp.Or(c.Advanced.Suspects, DefaultSuspects)
	c.Advanced.Hunt.Canaries = max(0, cmp.Or(c.Advanced.Hunt.Canaries, DefaultCanaries))
	c.Advanced.Patience = cmp.Or(c.Advanced.Patience, DefaultPatience)
	if c.QuarantineAge < 0 {
		c.QuarantineAge = math.MaxInt64
	}
	if c.Advanced.Now == nil {
		c.Advanced.Now = func() time.Time { return monotime.Now().Time() } // by which uses are stamped too
	}
	return c
}

// check refuses what has no meaning.
func (c Config) check(upstream core.Resource) error {
	bad := func(field, reason string) error {
		return &core.InvalidRequestError{Op: "debugguard.New", Field: field, Reason: reason}
	}
	switch {
	case upstream == nil:
		return bad("upstream", "nil: pass the resource to guard")
	case c.Mode > Hunt:
		return bad("Mode", c.Mode.String()+": use Off, Ledger, Sample or Hunt")
	case c.Advanced.RedZone > 1<<30:
		return bad("RedZone", "more than 1 GiB a side")
	case c.Advanced.Hunt.Delay < 0:
		return bad("Hunt.Delay", "negative")
	case c.Advanced.Tombstones < 0 || c.Advanced.Launches < 0 || c.Advanced.Suspects < 0:
		return bad("Tombstones, Launches, Suspects", "negative")
	}
	return nil
}
