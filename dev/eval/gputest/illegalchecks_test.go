package gputest

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
)

// refuses makes every further call.
func (l *lost) refuses() {
	block, on := l.blocks[0].ID, l.leases[0].ID()
	use := []core.Use{{Block: block, Access: core.Read}}
	calls := map[string]func() error{
		"Allocate":        func() error { _, err := l.rt.Allocate(ctx, core.Request{Bytes: 64, Stream: on}); return err },
		"Deallocate":      func() error { _, err := l.rt.Deallocate(ctx, block); return err },
		"PrepareBlockUse": func() error { _, err := l.rt.Core().PrepareBlockUse(ctx, block, on, core.Read); return err },
		"RecordBlockUse":  func() error { return l.rt.Core().RecordBlockUse(ctx, block, on) },
		"Reserve":         func() error { _, err := l.rt.Reserve(ctx, 64, "late"); return err },
		"Synchronize":     func() error { return l.rt.Streams().Synchronize(ctx, on) },
		"Launch": func() error {
			return l.rt.Launch(ctx, on, use, func(context.Context) error { return errors.New("the launch was let through") })
		},
	}
	for name, call := range calls {
		err := call()
		l.demand(errors.Is(err, core.ErrSticky), "%s was answered with %v", name, err)
	}
	h := l.rt.Health()
	l.demand(!h.OK && errors.Is(h.Err, core.ErrSticky), "the health is %+v", h)
}

// reports looks at the one finding.
func (l *lost) reports() {
	found := l.rt.Findings().Recent()
	for began := time.Now(); len(found) == 0 && time.Since(began) < time.Second; found = l.rt.Findings().Recent() {
		time.Sleep(time.Millisecond) // a goroutine of the runtime may have met the loss first, and be about to tell
	}
	if len(found) != 1 || found[0].Kind != names.FindingStickyError {
		l.demand(false, "findings %v, want the loss and nothing else", found)
		return
	}
	for i, name := range launchNames {
		at := slices.IndexFunc(found[0].Suspects, func(u core.UseRecord) bool { return u.Launch == name && u.Stream == l.leases[i].ID() })
		if at < 0 {
			l.demand(false, "the launch %q on stream %v is not among the suspects %v", name, l.leases[i].ID(), found[0].Suspects)
			continue
		}
		u := found[0].Suspects[at]
		l.demand(u.Tags[0] == l.blocks[i].Tag, "the suspect %v does not name the block tagged %q", u, l.blocks[i].Tag)
		l.demand(l.exported(u.Span), "the span of the suspect %v is not among those that were exported", u)
	}
}

func (l *lost) exported(span core.SpanRef) bool {
	return slices.ContainsFunc(l.spans.GetSpans(), func(s tracetest.SpanStub) bool {
		return !span.IsZero() && s.SpanContext.SpanID() == span.SpanID && s.SpanContext.TraceID() == span.TraceID
	})
}

// ends closes the runtime like a service that is told to stop.
func (l *lost) ends() {
	for _, release := range l.release {
		release()
	}
	for _, on := range l.leases {
		_ = on.Release() // the device is lost: nothing else is to be had of it
	}
	limited, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	_, err := l.rt.Close(limited)
	l.demand(errors.Is(err, core.ErrSticky), "Close said %v", err)
}
