package logging

import (
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/workline"
)

// fields appends what both formats with names say of a record, in this order. Times are
// each format's own. The package comment describes the fields.
func (rec *Record) fields(to []slog.Attr) []slog.Attr {
	e := &rec.Event
	to = append(to,
		slog.Uint64("seq", rec.Seq),
		slog.String("op", e.Op.String()),
		slog.Int("device", e.Ordinal),
		slog.Uint64("stream", uint64(e.Stream)),
		slog.String("tag", string(e.Tag)),
		slog.Uint64("requested", e.Requested),
		slog.Uint64("bytes", e.Bytes),
		slog.Int64("duration_ns", int64(e.Duration)),
		slog.String("layer", e.Layer))
	if e.Block.Generation != 0 {
		to = append(to, slog.String("ptr", "0x"+strconv.FormatUint(e.Block.Ptr, 16)), slog.Uint64("generation", uint64(e.Block.Generation)))
	}
	if launchOps.has(e.Op) {
		to = appendLaunch(to, e)
	}
	if e.Device != nil {
		to = append(to, slog.String("launch", e.Launch), slog.Uint64("launch_id", e.LaunchID), slog.Any("timed", workline.Of(e.Device)))
	}
	if e.Job != nil {
		to = append(to, slog.Any("job", workline.OfJob(e.Job)))
	}
	if span := &e.Span; !span.IsZero() {
		to = append(to,
			slog.String(names.TraceIDKey, hex.EncodeToString(span.TraceID[:])),
			slog.String(names.SpanIDKey, hex.EncodeToString(span.SpanID[:])),
			slog.String(names.TraceKey, e.Span.Extent(e.Alone)))
	}
	if e.Err != nil {
		to = append(to, slog.String("error", errorText(e.Err)), slog.String("kind", errorKind(e.Err)))
		to = appendWait(to, e.Err)
	}
	if e.Relieved {
		to = append(to, slog.Bool("relieved", true))
	}
	return to
}

func appendLaunch(to []slog.Attr, e *oplog.Event) []slog.Attr {
	to = append(to, slog.String("launch", e.Launch))
	if e.LaunchID != 0 {
		to = append(to, slog.Uint64("launch_id", e.LaunchID))
	}
	if e.Access != 0 {
		to = append(to, slog.String("access", e.Access.String()))
	}
	to = append(to, slog.Int("uses", e.Uses), slog.Int("waits", e.Waits), slog.Int("elided", e.Elided))
	var launches, blocks []uint64
	for _, ref := range e.WaitedFor {
		if ref.Launch != 0 {
			launches = append(launches, ref.Launch)
		} else if ref.Block != 0 {
			blocks = append(blocks, uint64(ref.Block))
		}
	}
	if launches != nil {
		to = append(to, slog.Any("waited_launches", launches))
	}
	if blocks != nil {
		to = append(to, slog.Any("waited_blocks", blocks))
	}
	return to
}

// appendWait is how a refused request had waited, and what stood before it.
func appendWait(to []slog.Attr, err error) []slog.Attr {
	short, ok := errors.AsType[*core.OutOfBudgetError](err)
	if !ok {
		return to
	}
	w := short.Wait
	if w.For != 0 {
		to = append(to, slog.Duration("waited", w.For))
	}
	if w.Ahead != 0 {
		to = append(to, slog.Int("ahead", w.Ahead), slog.Uint64("ahead_bytes", w.AheadBytes),
			slog.String("ahead_tag", string(w.First.OrUntagged())))
	}
	if w.Learning {
		to = append(to, slog.Bool("learning", true))
	}
	return to
}

// maxErrorBytes bounds the text of an error in a record.
const maxErrorBytes = 256

const ellipsis = "…"

// errorText is err's text in at most maxErrorBytes bytes of valid UTF-8. A
// text that was cut ends in an ellipsis.
func errorText(err error) string {
	s := strings.ToValidUTF8(err.Error(), string(utf8.RuneError))
	if len(s) <= maxErrorBytes {
		return s
	}
	cut := maxErrorBytes - len(ellipsis)
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + ellipsis
}

// errorKinds are looked through in order: the narrower kind comes first.
var errorKinds = [...]struct {
	target error
	name   string
}{
	{core.ErrOutOfBudget, "out_of_budget"},
	{core.ErrClaimExceeded, "claim_exceeded"},
	{core.ErrOutOfMemory, "out_of_memory"},
	{core.ErrDriver, "driver"},
	{core.ErrStreamMisuse, "stream_misuse"},
	{core.ErrUseAfterFree, "use_after_free"},
	{core.ErrOutOfBounds, "out_of_bounds"},
	{core.ErrInvalidRequest, "invalid_request"},
	{core.ErrClosed, "closed"},
	{context.Canceled, "canceled"},
	{context.DeadlineExceeded, "deadline_exceeded"},
}

// errorKind classifies err for machines.
func errorKind(err error) string {
	for _, k := range errorKinds {
		if errors.Is(err, k.target) {
			return k.name
		}
	}
	return "other"
}
