package fencepost

import (
	"context"
	"slices"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
)

// keptRefusals is how many refusals a runtime remembers, for who looks at it
// afterwards.
const keptRefusals = 32

// refusals remembers the newest refusals on their way to the log. The log has
// them too, as long as a busy stream leaves them there.
type refusals struct {
	next core.EventSink
	// trace makes a span of a refusal that has none.
	trace func(context.Context, core.Event) (span core.SpanRef, alone bool)

	mu     sync.Mutex
	total  uint64
	recent []core.Event
}

var _ core.ContextSink = (*refusals)(nil)

// Emit is EmitIn for an event of no request.
func (r *refusals) Emit(e core.Event) { r.EmitIn(context.Background(), e) }

// EmitIn remembers a refusal, and passes every event on. One of which the caller
// is told leads to the request's trace, also if that is not sampled.
func (r *refusals) EmitIn(ctx context.Context, e core.Event) {
	if e.Op == core.OpRefusal {
		if e.Span.IsZero() && !e.Relieved {
			e.Span, e.Alone = r.trace(ctx, e)
		}
		r.mu.Lock()
		r.total++
		if len(r.recent) == keptRefusals {
			r.recent = slices.Delete(r.recent, 0, 1)
		}
		r.recent = append(r.recent, e)
		r.mu.Unlock()
	}
	r.next.Emit(e)
}

// newest is how many there were, and the last of them, oldest first.
func (r *refusals) newest() (uint64, []core.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.total, slices.Clone(r.recent)
}
