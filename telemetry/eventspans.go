package telemetry

import (
	"errors"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/ring"
)

// MaxEventSpans is how many spans of refusals, failures and findings a second a [Resource]
// makes in traces that are not sampled. What is beyond is counted, and leaves no
// trace: a service under overload refuses thousands.
const MaxEventSpans = 50

// maxRecentSpans is how many of them are remembered, so that a log record or the
// next layer finds the span that there is: those of some seconds.
const maxRecentSpans = 256

// eventSpans bounds and remembers the spans of events in traces that are not
// sampled. Only calls that failed and findings come here.
type eventSpans struct {
	dropped atomic.Uint64

	mu     sync.Mutex
	second int64
	made   int
	recent ring.Ring[eventSpan]
}

type eventSpan struct {
	span core.SpanRef
	err  error
}

// admit reports whether the second of now has room for one more, and takes it. Whoever waited
// for the lock may come with the second before.
func (s *eventSpans) admit(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if second := now.Unix(); second > s.second || second < s.second-1 {
		s.second, s.made = second, 0
	}
	if s.made >= MaxEventSpans {
		s.dropped.Add(1)
		return false
	}
	s.made++
	return true
}

// remember keeps a span of err, unless the sampler said no to it. An error that
// cannot be compared, as one with a slice in a field that is an interface, would
// panic in errors.Is: its span is found by the trace alone.
func (s *eventSpans) remember(span core.SpanRef, err error) {
	if span.IsZero() {
		return
	}
	if !reflect.ValueOf(err).Comparable() {
		err = nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recent.Put(eventSpan{span, err}, maxRecentSpans)
}

// about finds the newest span of a trace that was made of err or of an error that
// err wraps, or of any if err is nil.
func (s *eventSpans) about(id trace.TraceID, err error) core.SpanRef {
	s.mu.Lock()
	defer s.mu.Unlock()
	for kept := range s.recent.Newest() {
		if kept.span.TraceID == id && (err == nil || errors.Is(err, kept.err)) {
			return kept.span
		}
	}
	return core.SpanRef{}
}
