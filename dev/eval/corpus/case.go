package corpus

import (
	"slices"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
)

// Class is the sort of a case.
type Class string

// The classes. The first two are those of the CuSafe suite.
const (
	// Spatial: an access outside the bounds of its block.
	Spatial Class = "spatial"
	// Temporal: an access or a free outside the life of its block, a block
	// that is never freed, or a read before anything was written.
	Temporal Class = "temporal"
	// Order: an access that is not ordered with another one, with the
	// allocation or with the free.
	Order Class = "order"
	// Clean: no bug at all, whatever it looks like.
	Clean Class = "clean"
)

// Classes are the classes of bugs, in the order of the table.
var Classes = []Class{Spatial, Temporal, Order}

// Outcome is what a tier made of a program.
type Outcome string

// The outcomes; see the package comment.
const (
	Found      Outcome = "found"
	Late       Outcome = "late"
	Missed     Outcome = "missed"
	FalseAlarm Outcome = "false alarm"
	// Silent is what a program without a bug must be.
	Silent Outcome = "clean"
	// DriverRefused: the driver of a GPU refuses the call that is the bug, so
	// that nothing happens.
	DriverRefused Outcome = "refused"
	// Broken: the program could not do what it is there for.
	Broken Outcome = "broken"
	// NotRun: there was no time left for the program.
	NotRun Outcome = "not run"
)

// Want is what the tiers must make of a bug.
type Want struct{ Tier0, Tier1, Tier2 Outcome }

// The common expectations.
var (
	// everywhere: host books see it, with or without the device's help.
	everywhere = Want{Found, Found, Found}
	// onDevice: it changes bytes that the guard watches.
	onDevice = Want{Missed, Found, Found}
	// onlyHunted: it changes bytes that only the hunt watches.
	onlyHunted = Want{Missed, Missed, Found}
	// nowhere: allocator and declarations do not show it.
	nowhere = Want{Missed, Missed, Missed}
)

// Case is a planted bug with its twin, or a clean program.
type Case struct {
	Name  string
	Class Class
	// What says in one sentence what the bug is, or why a clean program looks
	// like one.
	What string
	// Kinds are the kinds that a finding of it may have.
	Kinds []core.FindingKind
	// Culprit is the name of the launch that does it, empty if it is no launch
	// that the runtime was told of, or a call that is itself the finding.
	Culprit string
	// Want is what each tier must make of it, and Why the reason where that is
	// not Found.
	Want Want
	Why  string
	// Declared says that the runtime was told of what is wrong: a bug of time
	// or order that tier 0 has to find.
	Declared bool
	// Unseen is why the oracle sees nothing of the bug, empty if it does.
	Unseen string
	// Faults says that the bug loses the device.
	Faults bool
	// Unmapped says that the bug reaches memory that a hunt which unmaps has
	// taken away, so that it is run at that tier, too.
	Unmapped bool
	// Unaddressed says that a GPU can tell the launch of an Unmapped bug and not the block, which
	// makes it late there: the store ends its kernel, so no thread is left that has its address,
	// and no parameter points to the block.
	Unaddressed bool
	// Stack says that the program needs the stream-ordered backend, so that
	// compute-sanitizer sees it over that and not over single allocations.
	Stack bool
	// Configure changes the runtime's configuration; may be nil.
	Configure func(*fencepost.Config)
	// Run is the program. bug is false for the twin; a clean program does not
	// look at it.
	Run func(w *World, bug bool)
}

// Expected is what a tier must make of the bug.
func (c Case) Expected(tier string) Outcome {
	switch tier {
	case Tier0.Name:
		return c.Want.Tier0
	case Tier1.Name:
		return c.Want.Tier1
	case Unmapped.Name:
		return Found
	}
	return c.Want.Tier2
}

// Tiers are those at which the case is run.
func (c Case) Tiers() []Tier {
	if c.Unmapped {
		return append(slices.Clone(Tiers), Unmapped)
	}
	return Tiers
}

// ToolBackend is the backend under which compute-sanitizer sees the case: single
// allocations for what they can show, stream-ordered memory for the rest.
func (c Case) ToolBackend() fencepost.Backend {
	if c.Stack || c.Class == Order || c.Class == Clean {
		return fencepost.Async
	}
	return fencepost.Direct
}

// All are the cases, by class and then in the order of the table.
func All() []Case {
	var all []Case
	for _, part := range [][]Case{
		spatialWrites(), spatialCopies(), spatialStreams(), spatialOthers(), sealedSpatial(),
		temporalFrees(), temporalHandles(), temporalWrites(), temporalReuse(), temporalReads(),
		orderRecorded(), orderDeclared(), orderUndeclared(), orderStreams(), sealedOrder(),
		cleanBytes(), cleanLives(), cleanStreams(), cleanLaunches(), cleanModes(), cleanRuntimes(), cleanSeals(),
	} {
		all = append(all, part...)
	}
	return all
}

// Bugs are the cases with a bug.
func Bugs() []Case {
	return slices.DeleteFunc(All(), func(c Case) bool { return c.Class == Clean })
}

// Find returns the case of a name.
func Find(name string) (Case, bool) {
	all := All()
	i := slices.IndexFunc(all, func(c Case) bool { return c.Name == name })
	if i < 0 {
		return Case{}, false
	}
	return all[i], true
}

// pick is what the program does with the bug, or without it.
func pick[T any](bug bool, with, without T) T {
	if bug {
		return with
	}
	return without
}

// Tier is a way to run a program.
type Tier struct {
	// Name is that of the table and of results.
	Name string
	// Guard is the mode of the guard.
	Guard fencepost.GuardMode
	// OwnProcess: a late access loses the device, so a GPU is not shared with
	// other programs.
	OwnProcess bool
}

// The tiers.
var (
	// Bare is no tier: the guard is off, and on the simulated device the
	// oracle is asked.
	Bare  = Tier{Name: "oracle", Guard: "off"}
	Tier0 = Tier{Name: "tier 0", Guard: "ledger"}
	// Tier1 guards every block, because each holds more bytes than the mean
	// between samples.
	Tier1 = Tier{Name: "tier 1", Guard: "sample:1"}
	Tier2 = Tier{Name: "tier 2", Guard: "hunt:bisect"}
	// Unmapped takes the memory of freed blocks away.
	Unmapped = Tier{Name: "tier 2 unmapping", Guard: "hunt:bisect+unmap", OwnProcess: true}
)

// Tiers are those that a person can turn on, in the order of the table.
var Tiers = []Tier{Tier0, Tier1, Tier2}

// TierNamed returns a tier by its name.
func TierNamed(name string) (Tier, bool) {
	for _, t := range append([]Tier{Bare, Unmapped}, Tiers...) {
		if t.Name == name {
			return t, true
		}
	}
	return Tier{}, false
}
