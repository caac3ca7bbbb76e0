package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/core/oplog"
)

// Probe stands outside one layer of a stack and makes a [SpanLayer] of each
// call that a traced operation makes into it, so that a trace shows in which
// layer the time went. Below a [Resource] of the same stack: a call that is
// part of no traced operation makes no span. It changes nothing that the
// upstream answers, blocks only where that does, and is safe for concurrent
// use.
//
// A span costs what spans cost, and that is part of what the spans around it
// show: compare layers with each other, not with a stack without probes.
type Probe struct {
	upstream core.Resource
	tracer   trace.Tracer // nil if nothing is traced
	name     string
	span     string // the name of its spans
	device   attribute.KeyValue
}

var _ core.Resource = (*Probe)(nil)

// NewProbe wraps upstream, whose layer is name: one of the Layer constants, or
// what a layer of one's own is called. A nil provider makes no spans. A missing
// upstream or name is a [core.InvalidRequestError].
func NewProbe(upstream core.Resource, name string, provider trace.TracerProvider) (*Probe, error) {
	const op = "telemetry.NewProbe"
	if upstream == nil {
		return nil, &core.InvalidRequestError{Op: op, Field: "upstream", Reason: "nil: pass the layer to observe"}
	}
	if name == "" {
		return nil, &core.InvalidRequestError{Op: op, Field: "name", Reason: "empty: say which layer it is, such as telemetry.LayerBudget"}
	}
	name = names.Bound(name)
	p := &Probe{upstream: upstream, name: name, span: SpanLayer.on(name), device: AttrDevice.Int(upstream.Ordinal())}
	if provider != nil {
		p.tracer = tracerOf(provider)
	}
	return p, nil
}

// begin starts the span of a call that is part of a traced operation, nil
// otherwise.
func (p *Probe) begin(ctx context.Context, op oplog.Op) (context.Context, trace.Span) {
	if p.tracer == nil || !inTracedOperation(ctx) {
		return ctx, nil
	}
	ctx, span := p.tracer.Start(ctx, string(SpanLayer))
	if span.IsRecording() {
		set(span, SpanLayer, p.span, append(scratch(), p.device, text(AttrLayer, p.name), AttrOperation.String(op.String())))
	}
	return enter(ctx, span), span
}

// end ends the span that begin returned, and returns err.
func (p *Probe) end(span trace.Span, err error) error {
	if span != nil {
		end(span, err)
	}
	return err
}

// Allocate forwards, in a span.
func (p *Probe) Allocate(ctx context.Context, req core.Request) (core.Block, error) {
	ctx, span := p.begin(ctx, oplog.OpAllocate)
	b, err := p.upstream.Allocate(ctx, req)
	return b, p.end(span, err)
}

// Deallocate forwards, in a span.
func (p *Probe) Deallocate(ctx context.Context, id core.BlockID) (core.Block, error) {
	ctx, span := p.begin(ctx, oplog.OpDeallocate)
	b, err := p.upstream.Deallocate(ctx, id)
	return b, p.end(span, err)
}

// PrepareUse forwards, in a span.
func (p *Probe) PrepareUse(ctx context.Context, req core.UseRequest) (core.Ticket, error) {
	ctx, span := p.begin(ctx, oplog.OpPrepare)
	t, err := p.upstream.PrepareUse(ctx, req)
	return t, p.end(span, err)
}

// FinishUse forwards, in a span.
func (p *Probe) FinishUse(ctx context.Context, t core.Ticket) error {
	ctx, span := p.begin(ctx, oplog.OpFinish)
	return p.end(span, p.upstream.FinishUse(ctx, t))
}

// AbortUse forwards, in a span.
func (p *Probe) AbortUse(ctx context.Context, t core.Ticket) error {
	ctx, span := p.begin(ctx, oplog.OpAbort)
	return p.end(span, p.upstream.AbortUse(ctx, t))
}

// ReapPending forwards, in a span: a layer that is short of memory reaps.
func (p *Probe) ReapPending(ctx context.Context) error {
	ctx, span := p.begin(ctx, oplog.OpReap)
	return p.end(span, p.upstream.ReapPending(ctx))
}

// The calls below are part of no traced operation and are forwarded as they
// are.

// String names the stack, such as "probe(budget(async(sim:0)))".
func (p *Probe) String() string { return "probe(" + p.upstream.String() + ")" }

// Ordinal is the upstream's device.
func (p *Probe) Ordinal() int { return p.upstream.Ordinal() }

// Features are the upstream's.
func (p *Probe) Features() core.Features { return p.upstream.Features() }

// RecordUse forwards.
func (p *Probe) RecordUse(ctx context.Context, id core.BlockID, stream core.StreamID) error {
	return p.upstream.RecordUse(ctx, id, stream)
}

// Reserve forwards.
func (p *Probe) Reserve(ctx context.Context, bytes uint64, tag core.Tag) (core.Claim, error) {
	return p.upstream.Reserve(ctx, bytes, tag)
}

// ReleaseClaim forwards.
func (p *Probe) ReleaseClaim(ctx context.Context, id core.ClaimID) error {
	return p.upstream.ReleaseClaim(ctx, id)
}

// Drain forwards. It blocks as its upstream does.
func (p *Probe) Drain(ctx context.Context) error { return p.upstream.Drain(ctx) }

// State is the upstream's.
func (p *Probe) State(id core.BlockID) core.BlockState { return p.upstream.State(id) }

// Stats are the upstream's.
func (p *Probe) Stats() core.Stats { return p.upstream.Stats() }

// FreedOn is the upstream's.
func (p *Probe) FreedOn(id core.StreamID) core.FreeCounters { return p.upstream.FreedOn(id) }

// Subscribe hands the listener to the upstream: releases are the same here.
func (p *Probe) Subscribe(l core.Listener) { p.upstream.Subscribe(l) }

// Unwrap is the upstream.
func (p *Probe) Unwrap() core.Resource { return p.upstream }

// Withhold forwards.
func (p *Probe) Withhold(id core.BlockID, as core.BlockState) { p.upstream.Withhold(id, as) }

// CheckLive forwards.
func (p *Probe) CheckLive(ctx context.Context) error { return p.upstream.CheckLive(ctx) }

// Inspect is the upstream's.
func (p *Probe) Inspect() core.Inspector { return p.upstream.Inspect() }
