package findings

import (
	"context"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/ring"
)

// keptRefusals is how many refusals are kept.
const keptRefusals = 32

// Refusals keeps the newest refusals on their way to the log. The log has
// them too, as long as a busy stream leaves them there.
type Refusals struct {
	next  core.EventSink
	trace func(context.Context, core.Event) (span core.SpanRef, alone bool)

	mu     sync.Mutex
	total  uint64
	recent ring.Ring[core.Event]
}

var _ core.EventSink = (*Refusals)(nil)

// NewRefusals returns Refusals that pass every event on to next. trace makes a
// span of a refusal that has none.
func NewRefusals(next core.EventSink, trace func(context.Context, core.Event) (span core.SpanRef, alone bool)) *Refusals {
	return &Refusals{next: next, trace: trace}
}

// Emit keeps a refusal, and passes every event on. One of which the caller
// is told leads to the request's trace, also if that is not sampled.
func (r *Refusals) Emit(ctx context.Context, e core.Event) {
	if e.Op == core.OpRefusal {
		if e.Span.IsZero() && !e.Relieved {
			e.Span, e.Alone = r.trace(ctx, e)
		}
		r.mu.Lock()
		r.total++
		r.recent.Put(e, keptRefusals)
		r.mu.Unlock()
	}
	r.next.Emit(ctx, e)
}

// Newest is how many there were, and the last of them, oldest first.
func (r *Refusals) Newest() (uint64, []core.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.total, r.recent.List()
}
