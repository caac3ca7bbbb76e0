package guardcost

import (
	"context"

	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
)

// Setting is a tier of the guard as [debugguard.ParseMode] spells it.
type Setting struct {
	// Name is how it was spelt.
	Name    string
	setting debugguard.Setting
}

// Tiers are the settings whose cost is of interest. The first is the guard
// switched off, which is what the others are compared to.
func Tiers() []string { return []string{"off", "ledger", "sample", "sample:1", "hunt", "hunt:bisect"} }

// ParseSetting reads a setting. The error is a [core.InvalidRequestError].
//
// [core.InvalidRequestError]: https://pkg.go.dev/github.com/fencepost-gpu/fencepost/core#InvalidRequestError
func ParseSetting(name string) (Setting, error) {
	setting, err := debugguard.ParseMode(name)
	return Setting{Name: name, setting: setting}, err
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
// [debugguard.Resource.Apply].
func (s Setting) Apply(ctx context.Context, guard *debugguard.Resource) error {
	return guard.Apply(ctx, s.setting)
}
