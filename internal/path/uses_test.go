package path_test

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/decorators/budget"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/path"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// embedding is a decorator of somebody's own, which sees the calls of what lies above it.
type embedding struct{ core.Resource }

// over is a resource under layers that are listed from the innermost one outwards.
func over(t *testing.T, r core.Resource, layers ...core.Layer) core.Resource {
	t.Helper()
	return must.Get(core.Chain(r, layers...))(t)
}

func logs(level logging.Level) core.Layer {
	return func(up core.Resource) (core.Resource, error) {
		return logging.New(up, logging.Config{Level: level, Sinks: []logging.Sink{logging.NewRing(0)}})
	}
}

func limits(up core.Resource) (core.Resource, error) {
	return budget.New(up, budget.Config{Limit: 1 << 20})
}

func embeds(up core.Resource) (core.Resource, error) { return embedding{up}, nil }

// embedsBudget promotes the budget's methods, that which says to whom it passes uses included.
func embedsBudget(up core.Resource) (core.Resource, error) {
	b, err := budget.New(up, budget.Config{})
	return &struct{ *budget.Resource }{b}, err
}

func TestUsesGoPastLayersThatOnlyPassThemOn(t *testing.T) {
	bottom := core.Resource(coretest.NewFake(0))
	logged := over(t, bottom, logs(logging.Uses))
	watched := over(t, bottom, embeds)
	promoted := over(t, bottom, embedsBudget)
	for name, c := range map[string]struct {
		top  core.Resource
		want path.Uses
	}{
		"a resource":                        {bottom, bottom},
		"a budget":                          {over(t, bottom, limits), bottom},
		"a log without uses":                {over(t, bottom, logs(logging.Operations), limits), bottom},
		"a log with uses":                   {logged, logged},
		"a budget over a log with uses":     {over(t, logged, limits), logged},
		"a decorator of somebody's own":     {over(t, watched, limits, logs(logging.Operations)), watched},
		"one that embeds a layer of theirs": {over(t, promoted, limits), promoted},
	} {
		if got := path.UsesOf(c.top); got != c.want {
			t.Errorf("%s: uses go to %v", name, got)
		}
	}
}
