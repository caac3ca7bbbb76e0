package web

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/examples/service/internal/api"
	"github.com/fencepost-gpu/fencepost/examples/service/internal/device"
)

// ErrStopping is the cause of the requests' contexts when the service stops
// and has no more time for them.
var ErrStopping = errors.New("the service stops")

// statusClientGone is what access logs use for a client that did not wait.
const statusClientGone = 499

// refusal is an answer that the service itself decided on.
type refusal struct {
	api.Problem
	// retry: the same request may do better later.
	retry bool
}

func (e *refusal) Error() string { return e.Detail }

func refused(status int, code api.Code, format string, args ...any) *refusal {
	return &refusal{Problem: api.Problem{Title: http.StatusText(status), Status: status, Code: code, Detail: fmt.Sprintf(format, args...)}}
}

func malformed(format string, args ...any) *refusal {
	return refused(http.StatusBadRequest, api.CodeMalformed, format, args...)
}

// refusalOf says what a client is told of err. A lost device comes before all
// that follows from it, and what the service did before what it met.
func refusalOf(ctx context.Context, err error) *refusal {
	if own, ok := errors.AsType[*refusal](err); ok {
		return own
	}
	no := func(status int, code api.Code) *refusal { return refused(status, code, "%v", err) }
	retry := func(r *refusal) *refusal { r.retry = true; return r }
	switch {
	case errors.Is(err, core.ErrSticky):
		return no(http.StatusServiceUnavailable, api.CodeUnavailable)
	case errors.Is(err, core.ErrClosed), errors.Is(context.Cause(ctx), ErrStopping):
		return retry(no(http.StatusServiceUnavailable, api.CodeUnavailable)) // of another instance
	case errors.Is(err, context.DeadlineExceeded):
		return no(http.StatusGatewayTimeout, api.CodeDeadline)
	case errors.Is(err, context.Canceled), ctx.Err() != nil:
		return no(statusClientGone, api.CodeClientGone)
	case errors.Is(err, device.ErrUnjoinable), errors.Is(err, core.ErrInvalidRequest):
		return no(http.StatusUnprocessableEntity, api.CodeUnprocessable)
	case errors.Is(err, core.ErrOutOfMemory):
		return retry(no(http.StatusServiceUnavailable, api.CodeOutOfMemory))
	}
	// A reservation that is exceeded is the service's own mistake, and below.
	if short, ok := errors.AsType[*core.OutOfBudgetError](err); ok && !errors.Is(err, core.ErrClaimExceeded) {
		return refusalOfMemory(short)
	}
	return refused(http.StatusInternalServerError, api.CodeInternal, "the request failed, and the service's log says why")
}

// refusalOfMemory hands the runtime's explanation on. Its holders are the
// service's tags: where they are secrets, leave them out.
func refusalOfMemory(short *core.OutOfBudgetError) *refusal {
	r := refused(http.StatusServiceUnavailable, api.CodeOutOfBudget, "%v", short)
	r.retry = true
	if short.Requested > short.Limit {
		r = refused(http.StatusRequestEntityTooLarge, api.CodeExceedsBudget, "%v", short)
	}
	r.Memory = &api.Memory{Asked: short.Requested, Remaining: short.Remaining, Limit: short.Limit,
		Live: short.Live, Pending: short.Pending, Claimed: short.Claimed, Quarantined: short.Quarantined,
		Holders: []api.Holder{}, MoreHolders: short.MoreHolders, MoreBytes: short.MoreBytes,
		WaitedMS: short.Wait.For.Milliseconds(), Ahead: short.Wait.Ahead, AheadBytes: short.Wait.AheadBytes,
		AheadTag: string(short.Wait.First), Learning: short.Wait.Learning}
	for _, h := range short.Holders {
		r.Memory.Holders = append(r.Memory.Holders, api.Holder{Tag: string(h.Tag), State: h.State.String(), Bytes: h.Bytes, Blocks: h.Blocks})
	}
	return r
}

// refuse answers a request that failed, and logs what the service could not do,
// with what leads to the request's trace. A client's own mistake is in the answer
// only.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	no := refusalOf(r.Context(), err)
	s.metrics.refusals.WithLabelValues(string(no.Code)).Inc()
	span, extent := s.cfg.Runtime.TraceOf(r.Context())
	answer := no.Problem
	if !span.IsZero() {
		answer.TraceID = hex.EncodeToString(span.TraceID[:])
	}
	var event []any
	if extent == "event" { // of a sampled request the log's handler names the trace
		event = []any{"trace_id", answer.TraceID, "span_id", hex.EncodeToString(span.SpanID[:]), "trace", extent}
	}
	switch {
	case no.Status == http.StatusInternalServerError:
		slog.ErrorContext(r.Context(), "a request failed", append([]any{"route", r.Pattern, "error", err}, event...)...)
	case no.Status > http.StatusInternalServerError, no.Status == http.StatusTooManyRequests, no.Memory != nil:
		slog.WarnContext(r.Context(), "a request was refused", append([]any{"route", r.Pattern, "status", no.Status, "code", no.Code, "detail", no.Detail}, event...)...)
	}
	h := w.Header()
	h.Set("Content-Type", api.ProblemJSON)
	h.Set("Cache-Control", "no-store")
	if no.retry {
		h.Set("Retry-After", "1")
	}
	w.WriteHeader(no.Status)
	_ = json.NewEncoder(w).Encode(answer) //nolint:errchkjson // the client went away
}
