package cuda

import (
	"context"

	"github.com/fencepost-gpu/fencepost/core"
)

// begin begins a step in ctx's trace. What it returns goes to endStep.
func (p *StreamPool) begin(ctx context.Context, s core.Step) core.StepSpan {
	if p.steps == nil {
		return nil
	}
	return p.steps.BeginStep(ctx, s)
}

func endStep(span core.StepSpan, err error) {
	if span != nil {
		span.End(err)
	}
}
