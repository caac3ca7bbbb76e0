package runtimes_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
)

// The live view says who leased a stream: the job's caller, not the runtime.
func TestTheLiveViewNamesTheCallerOfAJob(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{})
	h, err := fencepost.NewHandler(fencepost.HandlerConfig{Runtimes: []*fencepost.Runtime{rt}})
	e2e.Succeed(t, "making the handler", err)
	var state string
	e2e.Succeed(t, "the job", rt.Do(t.Context(), "job", func(j *fencepost.Job) error {
		side, err := j.Fork()
		if err != nil {
			return err
		}
		if _, err = fencepost.Upload(side, []uint32{1}); err != nil {
			return err
		}
		state = e2e.Request(h, http.MethodGet, "/debug/gpumem/state", "").Body.String()
		return nil
	}))
	if n := strings.Count(state, "TestTheLiveViewNamesTheCallerOfAJob"); n < 2 {
		t.Errorf("%d of two leases name the caller:\n%s", n, state)
	}
	if strings.Contains(state, "fencepost.(*jobState)") || strings.Contains(state, "fencepost.(*Job)") {
		t.Errorf("the runtime's own frames are shown:\n%s", state)
	}
}
