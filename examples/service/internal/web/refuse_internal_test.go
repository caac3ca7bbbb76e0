package web

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/examples/service/internal/api"
)

// A job that outgrows its reservation would do so again: to send the client away
// for a moment would make it ask for ever.
func TestAReservationThatIsExceededIsTheServicesMistake(t *testing.T) {
	err := fmt.Errorf("the sort: %w", &core.OutOfBudgetError{Requested: 4000, Limit: 1 << 20, Claim: 1, Reserved: 12})
	no := refusalOf(t.Context(), err)
	if no.Status != http.StatusInternalServerError || no.Code != api.CodeInternal || no.retry || no.Memory != nil {
		t.Errorf("%+v", no)
	}
	no = refusalOf(t.Context(), &core.OutOfBudgetError{Requested: 4000, Limit: 1 << 20})
	if no.Status != http.StatusServiceUnavailable || no.Code != api.CodeOutOfBudget || !no.retry || no.Memory == nil {
		t.Errorf("without a reservation: %+v", no)
	}
}

// Whatever a body holds, it is read as no more rows than it has bytes, or refused.
func FuzzBodies(f *testing.F) {
	f.Add([]byte(`{"keys":[1,2]}`))
	f.Add([]byte(`{"left":[1],"right_keys":[2],"right_values":[3]}`))
	f.Add([]byte(`[[[[`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var sort api.SortRequest
		var join api.JoinRequest
		for _, to := range []any{&sort, &join} {
			if err := strictJSON(bytes.NewReader(data), to); err != nil && err.Error() == "" {
				t.Errorf("no reason: %v", err)
			}
		}
		if len(sort.Keys) > len(data) || len(join.Left)+len(join.RightKeys)+len(join.RightValues) > len(data) {
			t.Errorf("%d, %d, %d and %d rows of %d bytes", len(sort.Keys), len(join.Left), len(join.RightKeys), len(join.RightValues), len(data))
		}
	})
}
