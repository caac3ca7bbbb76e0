package telemetry_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

// named is the life of a block under a tag, with a launch under a name.
func named(ctx context.Context, t *testing.T, r core.Resource, tag core.Tag, name string) {
	b := must.Get(r.Allocate(ctx, core.Request{Bytes: 64, Stream: 1, Tag: tag}))(t)
	must.Do(t, launchPair(ctx, r, core.UseRequest{Stream: 1, Launch: name, Uses: uses(core.Write, b)}))
	must.Get(r.Deallocate(ctx, b.ID))(t)
}

// A program that names launches and tags by request makes names of spans no more than a
// metric has labels. The attributes say what the names leave out.
func TestNamesOfSpansAreBounded(t *testing.T) {
	r := newTraced(t, telemetry.Config{})
	named(r.request(t), t, r, "rows", "merge")
	var group sync.WaitGroup
	for worker := range 4 {
		group.Go(func() {
			for i := range 100 {
				id := fmt.Sprintf("request-%d-%d", worker, i)
				named(r.request(t), t, r, core.Tag(id), id)
			}
		})
	}
	group.Wait()
	named(r.request(t), t, r, "rows", "merge")
	spans := r.recorder.Ended()
	byOperation, targets := map[string]map[string]bool{}, map[attribute.Key]map[string]bool{telemetry.AttrTag: {}, telemetry.AttrLaunchName: {}}
	for _, s := range spans {
		operation, key := attributeOf(s, telemetry.AttrSpanOperation).AsString(), telemetry.AttrTag
		if attributeOf(s, telemetry.AttrLaunchName).AsString() != "" {
			key = telemetry.AttrLaunchName
		}
		target := attributeOf(s, key).AsString()
		targets[key][target] = true
		if s.Name() != operation+" "+target && s.Name() != operation+" other" || !strings.HasPrefix(operation, "gpumem.") {
			t.Errorf("a span of %q on %q is named %q", operation, target, s.Name())
		}
		if byOperation[operation] == nil {
			byOperation[operation] = map[string]bool{}
		}
		byOperation[operation][strings.TrimPrefix(s.Name(), operation+" ")] = true
	}
	for operation, names := range byOperation {
		if len(names) != metrics.MaxTags+1 || !names["other"] {
			t.Errorf("%s has %d names, want %d and other", operation, len(names), metrics.MaxTags)
		}
	}
	for key, all := range targets {
		if len(all) != 401 {
			t.Errorf("%s has %d values", key, len(all))
		}
	}
	launches, prepares := fmt.Sprint(byOperation["gpumem.launch"]), fmt.Sprint(byOperation["gpumem.prepare"])
	if first, last := spans[0].Name(), spans[len(spans)-2].Name(); launches != prepares || first != "gpumem.alloc rows" || last != "gpumem.launch merge" {
		t.Errorf("%s first, %s last but one; launches %s, prepares %s", first, last, launches, prepares)
	}
}

// Operations that are not sampled take no place among the names, whoever decides it.
func TestWhatIsNotSampledHasNoName(t *testing.T) {
	for name, c := range map[string]struct {
		ctx     context.Context
		sampler sdktrace.Sampler
	}{
		"by the caller": {unsampled(t.Context()), sdktrace.AlwaysSample()},
		"by a sampler":  {t.Context(), sdktrace.ParentBased(ownSampler{sdktrace.NeverSample()})},
	} {
		r := newTraced(t, telemetry.Config{}, sdktrace.WithSampler(c.sampler))
		for i := range 3 * metrics.MaxTags {
			id := fmt.Sprint("request-", i)
			named(c.ctx, t, r, core.Tag(id), id)
		}
		named(r.request(t), t, r, "rows", "merge")
		if spans := r.recorder.Ended(); len(spans) != 5 || spans[0].Name() != "gpumem.alloc rows" || spans[1].Name() != "gpumem.prepare merge" {
			t.Errorf("%s: %v", name, render(spans))
		}
	}
}

// Exporters lose a batch with a name that is no text.
func TestNamesOfSpansAreText(t *testing.T) {
	r := newTraced(t, telemetry.Config{})
	named(r.request(t), t, r, "\xff", "k\xfe")
	spans := r.recorder.Ended()
	for _, s := range spans {
		if !utf8.ValidString(s.Name()) || !strings.ContainsRune(s.Name(), utf8.RuneError) {
			t.Errorf("%q", s.Name())
		}
	}
	if len(spans) != 5 {
		t.Errorf("%d spans", len(spans))
	}
}
