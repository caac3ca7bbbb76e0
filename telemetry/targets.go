package telemetry

import (
	"cmp"
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

// targets are what operations of some kinds are about, such as launches by their names. The first
// [metrics.MaxTags] are told apart in the names of spans, for good; the others are other there, as tags are
// in metrics. Only a span that records asks for its name, which is made once.
type targets struct {
	of []SpanName
	// spans has the names. The map is replaced, never changed; mu is held for that.
	spans atomic.Pointer[map[spanTarget]string]
	mu    sync.Mutex
}

type spanTarget struct {
	operation SpanName
	target    string
}

// targetsOf are those of operations that share the bound: a target is told apart in all of them or in none.
func targetsOf(operations ...SpanName) *targets {
	t := &targets{of: operations}
	t.spans.Store(&map[spanTarget]string{})
	t.enter(string(metrics.OtherTag))
	return t
}

// name is that of a span: the operation alone if there is no target.
func (t *targets) name(operation SpanName, target string) string {
	if target == "" {
		return string(operation)
	}
	key, spans := spanTarget{operation, names.Bound(target)}, *t.spans.Load()
	if spans[key] == "" && t.room(spans) {
		spans = t.enter(key.target)
	}
	return cmp.Or(spans[key], spans[spanTarget{operation, string(metrics.OtherTag)}])
}

// room reports whether one more target, beside other, can be told apart.
func (t *targets) room(spans map[spanTarget]string) bool {
	return len(spans) <= metrics.MaxTags*len(t.of)
}

func (t *targets) enter(target string) map[spanTarget]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	spans := *t.spans.Load()
	if !t.room(spans) {
		return spans
	}
	spans, target = maps.Clone(spans), strings.Clone(target) // which may be a part of a large text
	for _, operation := range t.of {
		spans[spanTarget{operation, target}] = operation.on(target)
	}
	t.spans.Store(&spans)
	return spans
}
