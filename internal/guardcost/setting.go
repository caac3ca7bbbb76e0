package guardcost

import (
	"context"

	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
)

// Setting is a tier of the guard as [debugguard.ParseMode] spells it.
type Setting struct {
	// Name is how it was spelt.
	Name        string
	mode        debugguard.Mode
	sampleBytes uint64
}

// Tiers are the settings whose cost is of interest. The first is the guard
// switched off, which is what the others are compared to.
func Tiers() []string { return []string{"off", "ledger", "sample", "sample:1", "hunt"} }

// ParseSetting reads a setting. The error is a [core.InvalidRequestError].
//
// [core.InvalidRequestError]: https://pkg.go.dev/github.com/fencepost-gpu/fencepost/core#InvalidRequestError
func ParseSetting(name string) (Setting, error) {
	mode, sampleBytes, err := debugguard.ParseMode(name)
	return Setting{Name: name, mode: mode, sampleBytes: sampleBytes}, err
}

// ParseSettings reads several.
func ParseSettings(names ...string) ([]Setting, error) {
	var all []Setting
	for _, name := range names {
		s, err := ParseSetting(name)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// Apply switches a guard to the setting while it runs. Errors are those of
// [debugguard.Resource.SetMode].
func (s Setting) Apply(ctx context.Context, guard *debugguard.Resource) error {
	guard.SetSampleBytes(s.sampleBytes)
	return guard.SetMode(ctx, s.mode)
}
