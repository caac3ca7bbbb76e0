package corpus

import "github.com/fencepost-gpu/fencepost"

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
