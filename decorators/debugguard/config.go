package debugguard

import (
	"math"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

// Defaults of [Config].
const (
	DefaultRedZone         uint64        = 256
	DefaultQuarantineBytes uint64        = 64 << 20
	DefaultQuarantineAge   time.Duration = 10 * time.Second
	DefaultSampleBytes     uint64        = 64 << 20
	DefaultStackBytes      uint64        = 512 << 10
	DefaultPoisonCap       uint64        = 1 << 20
	DefaultTombstones                    = 16384
	DefaultLaunches                      = 4096
	DefaultSuspects                      = 16
)

// Config is how a guard is built. The zero value is a guard that is off, has
// no device, and can be switched to Ledger.
type Config struct {
	// Mode is the mode at the start; see [Resource.SetMode].
	Mode Mode
	// Device fills and compares bytes. Nil leaves only the ledger, whatever
	// the mode.
	Device core.DeviceOps
	// Findings takes what the guard finds. Nil discards it; it is counted
	// all the same.
	Findings core.FindingSink
	// Events takes refusals that the guard cured. Nil discards them.
	Events core.EventSink
	// RedZone is the bytes watched on each side of a guarded block, at
	// least. The left side is rounded up to keep the block's alignment, the
	// right side takes the rounding slack. Zero means DefaultRedZone.
	RedZone uint64
	// QuarantineBytes is the device memory that quarantine may hold. Over
	// it, the oldest blocks leave until an eighth is free, so that they are
	// compared in batches. A block that alone is larger is not quarantined.
	// Zero means DefaultQuarantineBytes.
	QuarantineBytes uint64
	// QuarantineAge is how long a block stays at most, looked at whenever a
	// guarded block comes or goes and in ReapPending. Zero means
	// DefaultQuarantineAge, a negative value no limit.
	QuarantineAge time.Duration
	// SampleBytes is the mean number of bytes between guarded blocks in mode
	// Sample. Zero means DefaultSampleBytes.
	SampleBytes uint64
	// StackBytes is the mean number of bytes between allocations whose
	// stacks are kept for other reasons than being guarded or of 1 MiB and
	// more. Zero means DefaultStackBytes.
	StackBytes uint64
	// PoisonCap is the size in bytes above which a block is poisoned only at
	// its first, middle and last words, except in mode Hunt or for a hunted
	// tag. Zero means DefaultPoisonCap.
	PoisonCap uint64
	// Refuse makes the guard refuse a misuse that a call can refuse, where it
	// only reports it otherwise: a read of what nobody wrote, a pointer into a
	// block that the launch does not declare, a use that bypassed the fences.
	// Work on freed blocks is refused in any case.
	Refuse bool
	// HuntTags are the tags hunted at the start; see [Resource.HuntTags].
	HuntTags []core.Tag
	// Tombstones is how many freed blocks the ledger remembers, and Launches
	// how many recent launches are kept as suspects. Suspects is how many of
	// them a finding names at most. Zero means the default of each.
	Tombstones, Launches, Suspects int
	// Now is the clock of quarantine ages and findings. Nil means time.Now.
	Now func() time.Time
}

// withDefaults fills in what was left zero.
func (c Config) withDefaults() Config {
	c.RedZone = orDefault(c.RedZone, DefaultRedZone)
	c.QuarantineBytes = orDefault(c.QuarantineBytes, DefaultQuarantineBytes)
	c.QuarantineAge = orDefault(c.QuarantineAge, DefaultQuarantineAge)
	c.SampleBytes = orDefault(c.SampleBytes, DefaultSampleBytes)
	c.StackBytes = orDefault(c.StackBytes, DefaultStackBytes)
	c.PoisonCap = orDefault(c.PoisonCap, DefaultPoisonCap)
	c.Tombstones = orDefault(c.Tombstones, DefaultTombstones)
	c.Launches = orDefault(c.Launches, DefaultLaunches)
	c.Suspects = orDefault(c.Suspects, DefaultSuspects)
	if c.QuarantineAge < 0 {
		c.QuarantineAge = math.MaxInt64
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

func orDefault[T comparable](v, fallback T) T {
	var zero T
	if v == zero {
		return fallback
	}
	return v
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
	case c.RedZone > 1<<30:
		return bad("RedZone", "more than 1 GiB a side")
	case c.Tombstones < 0 || c.Launches < 0 || c.Suspects < 0:
		return bad("Tombstones, Launches, Suspects", "negative")
	}
	return nil
}
