package core_test

import (
	"context"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
)

// watched keeps the uses of the last intent that was opened.
type watched struct {
	*coretest.Fake
	uses    []core.PreparedUse
	request core.UseRequest
}

func (w *watched) runtime(t *testing.T) *core.Runtime {
	w.Fake = coretest.NewFake(0)
	return newRuntime(t, w, nil)
}

func (w *watched) PrepareUse(ctx context.Context, r core.UseRequest) (core.Ticket, error) {
	t, err := w.Fake.PrepareUse(ctx, r)
	if err == nil {
		w.request = r
		w.uses = append([]core.PreparedUse(nil), t.Intent().Uses...)
	}
	return t, err
}
