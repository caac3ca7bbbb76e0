package telemetry

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/fencepost-gpu/fencepost/core"
)

// roots decides which operations without a parent begin a trace. To ask a sampler costs the
// SDK two allocations, and most answers are no. Where the provider's sampler is one of the SDK's own
// that decide by the trace id alone, the id is drawn here, and the sampler is asked
// only about those that it takes; any other sampler is asked about each operation.
type roots struct {
	provider trace.TracerProvider
	// known: trace ids whose last 63 bits are below the bound are taken. It ends if the sampler
	// declines one of these.
	known atomic.Bool
	below uint64
	// declined are contexts that no layer has looked at, to be used again.
	declined sync.Pool
}

func rootsOf(provider trace.TracerProvider) *roots {
	r := &roots{provider: provider}
	below, known := boundOf(provider)
	r.below = below
	r.known.Store(known)
	return r
}

// boundOf reads from the SDK's provider how it samples, which it has no call for. It is not known of
// another provider, sampler or generator of ids, nor if the SDK has changed inside.
func boundOf(provider trace.TracerProvider) (below uint64, known bool) {
	v := sdkType(reflect.ValueOf(provider), "TracerProvider")
	if !v.IsValid() || !sdkType(v.FieldByName("idGenerator"), "randomIDGenerator").IsValid() {
		return 0, false
	}
	sampler := v.FieldByName("sampler")
	if based := sdkType(sampler, "parentBased"); based.IsValid() {
		sampler = based.FieldByName("root")
	}
	if sdkType(sampler, "alwaysOffSampler").IsValid() {
		return 0, true
	}
	if same := sdkType(sampler, "predeterminedSampler"); same.IsValid() {
		decision := same.FieldByName("decision")
		return 0, decision.IsValid() && decision.CanUint() && decision.Uint() == 0
	}
	if ratio := sdkType(sampler, "traceIDRatioSampler"); ratio.IsValid() {
		if bound := ratio.FieldByName("traceIDUpperBound"); bound.IsValid() && bound.CanUint() {
			return bound.Uint(), true
		}
	}
	return 0, false
}

// sdkType is v, or what it points to, if that is the struct of that name of the SDK; else invalid.
func sdkType(v reflect.Value, name string) reflect.Value {
	for v.IsValid() && (v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer) {
		v = v.Elem()
	}
	if v.IsValid() && v.Kind() == reflect.Struct && v.Type().PkgPath() == "go.opentelemetry.io/otel/sdk/trace" && v.Type().Name() == name {
		return v
	}
	return reflect.Value{}
}

// draw decides about one operation that has no parent, and returns the context to start its
// span with, if it may begin a trace.
func (r *roots) draw(ctx context.Context) (context.Context, admission) {
	switch {
	case !r.known.Load():
		return ctx, asRoot
	case r.below == 0:
		return ctx, declined
	}
	drawn := rand.Uint64()
	if drawn>>1 >= r.below {
		return ctx, declined
	}
	// A trace without a span is no parent: the SDK makes a root of it, in this trace.
	var id trace.TraceID
	binary.BigEndian.PutUint64(id[:8], rand.Uint64()|1)
	binary.BigEndian.PutUint64(id[8:], drawn)
	return trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{TraceID: id})), asRoot
}

// asked hears the sampler's answer about a root that draw let pass.
func (r *roots) asked(span trace.Span) {
	if r.known.Load() && !contextOf(span).IsSampled() {
		r.known.Store(false)
	}
}

// declinedRoot is the context of an operation whose root span is not sampled: what is begun
// within is not sampled either. Each operation has ids of its own. A context that only this package
// has looked at serves the next operation of the same caller too: its ids are copied before.
type declinedRoot struct {
	context.Context
	of       *roots
	high     uint64 // the first half of its trace ids
	seed     uint64
	reusable bool
	// state is twice the number of the operation, and one more once others know its ids.
	state atomic.Uint64
}

// decline returns the context of an operation that begins no trace.
func (r *roots) decline(ctx context.Context) *declinedRoot {
	if d, ok := r.declined.Get().(*declinedRoot); ok && d.Context == ctx {
		if state := d.state.Load(); state&1 == 0 && d.state.CompareAndSwap(state, state+2) {
			return d
		}
	}
	// Contexts of one type can be compared for sure if they are pointers, or of no size.
	kind := reflect.TypeOf(ctx)
	return &declinedRoot{Context: ctx, of: r, high: rand.Uint64() | 1, seed: rand.Uint64(),
		reusable: kind.Kind() == reflect.Pointer || kind.Size() == 0}
}

// Begin is decline for an operation of which a layer beneath may want to know the context.
func (r *roots) Begin(ctx context.Context) context.Context { return r.decline(ctx) }

// End is done for what Begin has returned.
func (r *roots) End(ctx context.Context) { ctx.(*declinedRoot).done() }

// done gives the context back at the end of its operation, if it may be used again.
func (d *declinedRoot) done() {
	if d.reusable && d.state.Load()&1 == 0 {
		d.of.declined.Put(d)
	}
}

// ref is the root that was declined.
func (d *declinedRoot) ref() (in core.SpanContext) {
	number := d.state.Load() &^ 1
	binary.BigEndian.PutUint64(in.TraceID[:8], d.high)
	binary.BigEndian.PutUint64(in.TraceID[8:], mix(d.seed+number))
	binary.BigEndian.PutUint64(in.SpanID[:], mix(d.seed+number+1)|1)
	return in
}

// mix is a step of splitmix64: numbers that follow each other become ids that look random.
func mix(x uint64) uint64 {
	x *= 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Value is the declined root for OpenTelemetry, else the caller's.
func (d *declinedRoot) Value(key any) any {
	if key == spanKey {
		d.state.Or(1)
		ref := d.ref()
		return declinedSpan{provider: d.of.provider, sc: trace.NewSpanContext(trace.SpanContextConfig{TraceID: ref.TraceID, SpanID: ref.SpanID})}
	}
	return d.Context.Value(key)
}

// declinedSpan is what the SDK makes of a root that it declines.
type declinedSpan struct {
	noop.Span
	sc       trace.SpanContext
	provider trace.TracerProvider
}

// SpanContext has ids and is not sampled.
func (s declinedSpan) SpanContext() trace.SpanContext { return s.sc }

// TracerProvider is the one that did not sample.
func (s declinedSpan) TracerProvider() trace.TracerProvider { return s.provider }

// spanKey is the key of a context under which OpenTelemetry keeps the span.
var spanKey = func() any {
	var asked keyOf
	trace.SpanFromContext(&asked)
	return asked.key
}()

// keyOf is a context that remembers what it was asked for.
type keyOf struct {
	context.Context
	key any
}

// Value remembers key and has nothing.
func (k *keyOf) Value(key any) any { k.key = key; return nil }
