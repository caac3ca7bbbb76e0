package web

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strconv"

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
	status int
	code   api.Code
	detail string
	// retry: the same request may do better later.
	retry  bool
	memory *api.Memory
}

func (e *refusal) Error() string { return e.detail }

func malformed(format string, args ...any) error {
	return &refusal{status: http.StatusBadRequest, code: api.CodeMalformed, detail: fmt.Sprintf(format, args...)}
}

// refusalOf says what a client is told of err. A lost device comes before all
// that follows from it, and what the service did before what it met.
func refusalOf(ctx context.Context, err error) *refusal {
	if own, ok := errors.AsType[*refusal](err); ok {
		return own
	}
	unavailable := &refusal{status: http.StatusServiceUnavailable, code: api.CodeUnavailable, detail: err.Error()}
	switch {
	case errors.Is(err, core.ErrSticky):
		return unavailable
	case errors.Is(err, core.ErrClosed), errors.Is(context.Cause(ctx), ErrStopping):
		unavailable.retry = true // of another instance
		return unavailable
	case errors.Is(err, context.DeadlineExceeded):
		return &refusal{status: http.StatusGatewayTimeout, code: api.CodeDeadline, detail: err.Error()}
	case errors.Is(err, context.Canceled), ctx.Err() != nil:
		return &refusal{status: statusClientGone, code: api.CodeClientGone, detail: err.Error()}
	case errors.Is(err, device.ErrUnjoinable), errors.Is(err, core.ErrInvalidRequest):
		return &refusal{status: http.StatusUnprocessableEntity, code: api.CodeUnprocessable, detail: err.Error()}
	case errors.Is(err, core.ErrOutOfMemory):
		return &refusal{status: http.StatusServiceUnavailable, code: api.CodeOutOfMemory, retry: true, detail: err.Error()}
	}
	// A reservation that is exceeded is the service's own mistake, and below.
	if short, ok := errors.AsType[*core.OutOfBudgetError](err); ok && !errors.Is(err, core.ErrClaimExceeded) {
		return refusalOfMemory(short)
	}
	return &refusal{status: http.StatusInternalServerError, code: api.CodeInternal, detail: "the request failed, and the service's log says why"}
}

// refusalOfMemory hands the runtime's explanation on. Its holders are the
// service's tags: where they are secrets, leave them out.
func refusalOfMemory(short *core.OutOfBudgetError) *refusal {
	m := &api.Memory{Asked: short.Requested, Remaining: short.Remaining, Limit: short.Limit,
		Live: short.Live, Pending: short.Pending, Claimed: short.Claimed, Quarantined: short.Quarantined, Holders: []api.Holder{}}
	for _, h := range short.Holders {
		m.Holders = append(m.Holders, api.Holder{Tag: string(h.Tag), State: h.State.String(), Bytes: h.Bytes, Blocks: h.Blocks})
	}
	r := &refusal{status: http.StatusServiceUnavailable, code: api.CodeOutOfBudget, retry: true, detail: short.Error(), memory: m}
	if short.Requested > short.Limit {
		r.status, r.code, r.retry = http.StatusRequestEntityTooLarge, api.CodeExceedsBudget, false
	}
	return r
}

// refuse answers a request that failed.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	no := refusalOf(r.Context(), err)
	s.metrics.refusals.WithLabelValues(string(no.code)).Inc()
	span, extent := s.rt.TraceOf(r.Context())
	no.log(r, err, eventAttrs(span, extent))
	p := api.Problem{Title: http.StatusText(no.status), Status: no.status, Code: no.code, Detail: no.detail, Memory: no.memory}
	if !span.IsZero() {
		p.TraceID = hex.EncodeToString(span.TraceID[:])
	}
	h := w.Header()
	h.Set("Content-Type", api.ProblemJSON)
	h.Set("Cache-Control", "no-store")
	if no.retry {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(s.limits.RetryAfter.Seconds()))))
	}
	w.WriteHeader(no.status)
	_ = json.NewEncoder(w).Encode(p) //nolint:errchkjson // the client went away
}

// eventAttrs name the exported span of a refusal whose request is not sampled. A
// sampled request's trace is in the context, and the log's handler names it.
func eventAttrs(span core.SpanRef, extent string) []any {
	if extent != core.TraceEvent {
		return nil
	}
	return []any{core.TraceIDKey, hex.EncodeToString(span.TraceID[:]), core.SpanIDKey, hex.EncodeToString(span.SpanID[:]), core.TraceKey, extent}
}

// log says what the service could not do, with what leads to the request's trace.
// What a client did wrong it is told itself.
func (e *refusal) log(r *http.Request, err error, event []any) {
	switch {
	case e.status == http.StatusInternalServerError:
		slog.ErrorContext(r.Context(), "a request failed", append([]any{"route", r.Pattern, "error", err}, event...)...)
	case e.status > http.StatusInternalServerError, e.status == http.StatusTooManyRequests, e.memory != nil:
		slog.WarnContext(r.Context(), "a request was refused", append([]any{"route", r.Pattern, "status", e.status, "code", e.code, "detail", e.detail}, event...)...)
	}
}
