package refuse_test

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/refuse"
)

func TestARefusalIsUntrueIfItsFiguresDoNotSayWhy(t *testing.T) {
	full := core.OutOfBudgetError{Requested: 30, Remaining: 20, Limit: 100, Live: 50, Pending: 15, Quarantined: 10,
		Claimed: 5,
		Holders: []core.Holder{{Tag: "a", State: core.Live, Bytes: 40}, {Tag: "b", State: core.Live, Bytes: 10},
			{Tag: "a", State: core.Retired, Bytes: 15}}}
	for name, c := range map[string]struct {
		change func(*core.OutOfBudgetError)
		true   bool
	}{
		"full":                          {func(*core.OutOfBudgetError) {}, true},
		"over a limit that was lowered": {func(e *core.OutOfBudgetError) { e.Limit, e.Remaining = 60, 0 }, true},
		"lent bytes that remain":        {func(e *core.OutOfBudgetError) { e.Remaining, e.Lent = 25, 5 }, true},
		"lent bytes that do not remain": {func(e *core.OutOfBudgetError) { e.Lent = 5 }, false},
		"fewer remain":                  {func(e *core.OutOfBudgetError) { e.Remaining = 19 }, false},
		"more remains":                  {func(e *core.OutOfBudgetError) { e.Remaining = 30 }, false},
		"the sums leave more":           {func(e *core.OutOfBudgetError) { e.Limit = 110 }, false},
		"no limit":                      {func(e *core.OutOfBudgetError) { e.Limit = 0 }, false},
		"holders of more than there is": {func(e *core.OutOfBudgetError) { e.Holders[1].Bytes = 11 }, false},
		"a reservation that is exceeded": {func(e *core.OutOfBudgetError) {
			e.Claim, e.Reserved, e.Limit = 1, 25, 1000
		}, true},
		"a reservation with room": {func(e *core.OutOfBudgetError) { e.Claim, e.Reserved, e.Remaining = 1, 25, 30 }, false},
	} {
		e := full
		e.Holders = append([]core.Holder(nil), full.Holders...)
		c.change(&e)
		if err := refuse.Untrue(&e); (err == nil) != c.true {
			t.Errorf("%s: %v", name, err)
		}
	}
}
