package telemetry

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/internal/ring"
	"github.com/fencepost-gpu/fencepost/internal/usercode"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

// DefaultKeep is how many findings a [Findings] keeps if not told.
const DefaultKeep = 256

const (
	// maxKinds bounds the kinds of findings that are told apart: core knows far fewer.
	// otherKind stands for the rest.
	maxKinds                   = 64
	otherKind core.FindingKind = "other"
	// maxPlaces bounds the places in the code whose harmless findings are told.
	maxPlaces = 1024
)

// FindingsConfig configures a [Findings]. The zero value keeps the last
// [DefaultKeep] and logs nothing.
type FindingsConfig struct {
	// Keep is how many findings are kept; zero or less means [DefaultKeep].
	Keep int
	// Logger gets one error record for each finding, with what an operator needs
	// first: what happened, whose block, which launches, where in the program, and
	// which file has the rest; docs/guard.md lists the attributes. It is a warning
	// where nothing was harmed or nothing is proven. The record's context carries the trace of the first launch or
	// use that was traced. Its handler runs in the goroutine that reports, so it
	// should not block.
	Logger *slog.Logger
	// TracerProvider, if not nil, makes a [SpanFinding] of each finding that can be
	// put into a trace: that of a suspect, or of the request that launched it, or
	// that freed or allocated the victim. In requests that are not sampled it makes
	// at most [MaxEventSpans] a second. Its processors run in the goroutine that
	// reports, so they should not block.
	TracerProvider trace.TracerProvider
}

// Findings collects findings in bounded memory: it counts all of them and
// keeps the last few whole. It is safe for concurrent use.
type Findings struct {
	logger *slog.Logger
	tracer trace.Tracer // nil if nothing is traced
	events eventSpans
	// targets are the kinds that are told apart in the names of spans.
	targets *targets

	mu    sync.Mutex
	total uint64
	kinds map[core.FindingKind]uint64
	// mild is what of kinds harmed nothing or is not proven. places are where
	// harmless findings came from, so that each is kept and logged once.
	mild   map[core.FindingKind]uint64
	places map[uintptr]bool
	byTag  map[tagKey]uint64
	tags   map[core.Tag]bool
	recent ring.Ring[core.Finding]
	keep   int
	// unwritten are paths that no finding is to name.
	unwritten map[string]bool
}

type tagKey struct {
	kind core.FindingKind
	tag  core.Tag
}

// NewFindings returns an empty collection.
func NewFindings(cfg FindingsConfig) *Findings {
	c := &Findings{
		logger: usercode.Logger(cfg.Logger), keep: cmp.Or(max(cfg.Keep, 0), DefaultKeep),
		kinds: map[core.FindingKind]uint64{}, mild: map[core.FindingKind]uint64{}, places: map[uintptr]bool{},
		byTag: map[tagKey]uint64{}, tags: map[core.Tag]bool{}, unwritten: map[string]bool{}, targets: targetsOf(SpanFinding),
	}
	if cfg.TracerProvider != nil {
		c.tracer = tracerOf(cfg.TracerProvider)
	}
	return c
}

// Report traces f, counts it, keeps it and logs it. Of those that harmed nothing
// ([core.Finding.Harmless]) only the first from each place in the code is more
// than counted: a program may bring one with every request. Report calls nothing
// but the logger's handler and the tracer, and those with no lock held.
func (c *Findings) Report(f core.Finding) {
	if !f.Harmless() || !c.repeats(&f) {
		c.Take(c.Trace(f))
	}
}

// Take is Report of a finding that was traced.
func (c *Findings) Take(f core.Finding) {
	c.mu.Lock()
	c.count(&f)
	if c.unwritten[f.Incident] {
		f.Incident = ""
	}
	c.recent.Put(f, c.keep)
	c.mu.Unlock()
	if c.logger != nil {
		logFinding(c.logger, f)
	}
}

// maxUnwritten bounds what is remembered of files that could not be written: only
// findings that are being reported just then can yet name them.
const maxUnwritten = 64

// IncidentFailed takes the path of an incident that could not be written from the
// findings that name it, and logs why.
func (c *Findings) IncidentFailed(path string, err error) {
	c.mu.Lock()
	if len(c.unwritten) >= maxUnwritten {
		clear(c.unwritten)
	}
	c.unwritten[path] = true
	for f := range c.recent.Newest() {
		if f.Incident == path {
			f.Incident = ""
		}
	}
	c.mu.Unlock()
	if c.logger != nil {
		c.logger.LogAttrs(context.Background(), slog.LevelError, "fencepost: an incident file could not be written", slog.String("incident", path), slog.Any("error", err))
	}
}

// repeats reports whether something harmless came from the place of f before, and
// counts f then. Beyond maxPlaces there are no new ones.
func (c *Findings) repeats(f *core.Finding) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	var place uintptr
	if len(f.CallStack) > 0 {
		place = f.CallStack[0]
	}
	if !c.places[place] && len(c.places) < maxPlaces {
		c.places[place] = true
		return false
	}
	c.count(f)
	return true
}

// count counts f; mu must be held.
func (c *Findings) count(f *core.Finding) {
	c.total++
	kind := f.Kind
	if _, known := c.kinds[kind]; !known && len(c.kinds) >= maxKinds {
		kind = otherKind
	}
	c.kinds[kind]++
	tag := f.Victim.Tag.OrUntagged()
	if !c.tags[tag] && len(c.tags) >= metrics.MaxTags {
		tag = metrics.OtherTag
	} else {
		c.tags[tag] = true
	}
	if f.Unproven || f.Harmless() {
		c.mild[kind]++
	}
	if f.Unproven {
		kind += unprovenSuffix
	}
	c.byTag[tagKey{kind, tag}]++
}

// Total is the number of findings so far.
func (c *Findings) Total() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total
}

// Counts is the number of findings so far by kind. The map is the caller's.
func (c *Findings) Counts() map[core.FindingKind]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.kinds)
}

// Harmful is Counts without the findings that harmed nothing
// ([core.Finding.Harmless]) and those that are not proven
// ([core.Finding.Unproven]). The map is the caller's.
func (c *Findings) Harmful() map[core.FindingKind]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := maps.Clone(c.kinds)
	for kind, n := range c.mild {
		counts[kind] -= n
	}
	return counts
}

// unprovenSuffix ends the kind of findings that are not proven where findings are
// counted by tag, and so in metrics: an alert on the kind is for what is.
const unprovenSuffix = "-unproven"

// CountsByTag is the number of findings so far by kind and tag of the victim,
// sorted; those that are not proven are of a kind of their own, which ends in
// "-unproven". The first [metrics.MaxTags] tags are told apart.
func (c *Findings) CountsByTag() []metrics.TagFindings {
	c.mu.Lock()
	counts := make([]metrics.TagFindings, 0, len(c.byTag))
	for key, n := range c.byTag {
		counts = append(counts, metrics.TagFindings{Kind: key.kind, Tag: key.tag, Count: n})
	}
	c.mu.Unlock()
	slices.SortFunc(counts, func(a, b metrics.TagFindings) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Tag, b.Tag))
	})
	return counts
}

// Recent is the last findings, oldest first. The slice is the caller's.
func (c *Findings) Recent() []core.Finding {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.recent.List()
}

// spanOf is the first traced launch that f names, a suspect or else a use, or the
// span of f itself.
func spanOf(f *core.Finding) core.SpanRef {
	for _, uses := range [][]core.UseRecord{f.Suspects, f.Uses} {
		for _, u := range uses {
			if !u.Span.IsZero() {
				return u.Span
			}
		}
	}
	return f.Span
}

// logFinding writes the one record of a finding. Names and order of the attributes
// are a promise; docs/guard.md has them.
func logFinding(logger *slog.Logger, f core.Finding) {
	ctx := context.Background()
	if span := spanOf(&f); !span.IsZero() {
		ctx = trace.ContextWithSpanContext(ctx, spanContext(span))
	}
	level := slog.LevelError
	if f.Harmless() || f.Unproven {
		level = slog.LevelWarn
	}
	if logger.Enabled(ctx, level) {
		logger.LogAttrs(ctx, level, findingMessage(&f), findingLogAttrs(&f)...)
	}
}

// findingMessage is the finding in words, with the likeliest launch.
func findingMessage(f *core.Finding) string {
	text := "gpu memory finding: " + f.Text
	if len(f.Suspects) == 0 || f.Unranked && len(f.Suspects) > 1 {
		return text
	}
	u := &f.Suspects[0]
	text += fmt.Sprintf("; %s: %s, stream %v", f.Suspicion(0), plainName(u.Launch), u.Stream)
	if !u.Span.IsZero() {
		text += fmt.Sprintf(", trace %x", u.Span.TraceID)
	}
	return text
}

// plainName is a name as it is in a message: quoted where it could be misread.
func plainName(name string) string {
	if name == "" {
		return "a launch without a name"
	}
	if quoted := strconv.Quote(name); strings.ContainsAny(name, " ,;:") || quoted != `"`+name+`"` {
		return quoted
	}
	return name
}

func findingLogAttrs(f *core.Finding) []slog.Attr {
	attrs := []slog.Attr{slog.String("kind", string(f.Kind)), slog.String("source", f.Source)}
	if f.Unproven {
		attrs = append(attrs, slog.Bool("unproven", true))
	}
	if v := &f.Victim; v.ID.Generation != 0 {
		attrs = append(attrs,
			slog.String("tag", string(v.Tag.OrUntagged())),
			slog.Uint64("generation", uint64(v.ID.Generation)),
			slog.Uint64("requested", v.Requested),
			slog.String("ptr", fmt.Sprintf("%#x", v.ID.Ptr)),
			slog.Int("device", v.ID.Ordinal),
			slog.String("stream", v.ID.AllocStream.String()))
	}
	if f.BadBytes != 0 {
		attrs = append(attrs, slog.Int64("offset", f.Offset), slog.Uint64("bad_bytes", f.BadBytes))
	}
	if n := len(f.Suspects); n > 0 {
		attrs = append(attrs, slog.Int("suspects", n))
		if f.MoreSuspects {
			attrs = append(attrs, slog.Bool("more_suspects", true))
		}
		if f.Unranked {
			attrs = append(attrs, slog.Bool("unranked", true))
		}
		for i := range named(f) {
			attrs = append(attrs, suspectGroup(i, &f.Suspects[i]))
		}
	}
	if !f.Span.IsZero() {
		attrs = append(append(attrs, spanLogAttrs(f.Span)...), slog.String(names.TraceKey, f.Span.Extent(f.Alone)))
	}
	for _, place := range []struct{ key, at string }{
		{"allocated_at", f.AllocStack.Caller()}, {"freed_at", f.FreeStack.Caller()}, {"called_at", f.CallStack.Caller()}, {"incident", f.Incident},
	} {
		if place.at != "" {
			attrs = append(attrs, slog.String(place.key, place.at))
		}
	}
	return attrs
}

// named are the suspects that are named where there is no room for all: the first. If none
// is likelier than another they are all named or none.
func named(f *core.Finding) []core.UseRecord {
	if f.Unranked && len(f.Suspects) > MaxFindingSpans {
		return nil
	}
	return f.Suspects[:min(len(f.Suspects), MaxFindingSpans)]
}

// suspectGroup is one suspect, as "suspect_1" and so on. What is not known of it
// is left out.
func suspectGroup(i int, u *core.UseRecord) slog.Attr {
	attrs := []slog.Attr{slog.String("launch", u.Launch)}
	if u.LaunchID != 0 {
		attrs = append(attrs, slog.Uint64("id", u.LaunchID))
	}
	attrs = append(attrs, slog.String("stream", u.Stream.String()))
	if u.Access != 0 {
		attrs = append(attrs, slog.String("access", u.Access.String()))
	}
	if !u.Span.IsZero() {
		attrs = append(attrs, spanLogAttrs(u.Span)...)
	}
	return slog.GroupAttrs(fmt.Sprintf("suspect_%d", i+1), attrs...)
}

func spanLogAttrs(span core.SpanRef) []slog.Attr {
	return []slog.Attr{slog.String(names.TraceIDKey, hex.EncodeToString(span.TraceID[:])), slog.String(names.SpanIDKey, hex.EncodeToString(span.SpanID[:]))}
}
