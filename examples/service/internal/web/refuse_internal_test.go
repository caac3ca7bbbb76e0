package web

import (
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
	if no.status != http.StatusInternalServerError || no.code != api.CodeInternal || no.retry || no.memory != nil {
		t.Errorf("%+v", no)
	}
	no = refusalOf(t.Context(), &core.OutOfBudgetError{Requested: 4000, Limit: 1 << 20})
	if no.status != http.StatusServiceUnavailable || no.code != api.CodeOutOfBudget || !no.retry || no.memory == nil {
		t.Errorf("without a reservation: %+v", no)
	}
}
