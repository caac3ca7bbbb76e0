// Package api is what the example service and its clients say to each other.
//
// POST /sort and POST /join take and answer a JSON object. Every refusal is a
// [Problem].
package api

import "fmt"

// The routes.
const (
	RouteSort    = "/sort"
	RouteJoin    = "/join"
	RouteMetrics = "/metrics"
	RouteHealth  = "/healthz"
	RouteReady   = "/readyz"
	RouteDebug   = "/debug/" // with all below it
)

// The media types.
const (
	JSON        = "application/json"
	ProblemJSON = "application/problem+json"
)

// HeaderTimeout is the request header that shortens a request's deadline, as
// a Go duration such as 250ms.
const HeaderTimeout = "Request-Timeout"

// SortRequest asks for keys in order, and the answer has them so.
type SortRequest struct {
	Keys []uint32 `json:"keys"`
}

// JoinRequest asks for the right row of each left key. Right keys are unique.
type JoinRequest struct {
	Left        []uint32 `json:"left"`
	RightKeys   []uint32 `json:"right_keys"`
	RightValues []uint32 `json:"right_values"`
}

// JoinResponse has the value of the right row for each left key, null if there
// is none.
type JoinResponse struct {
	Values []*uint32 `json:"values"`
}

// Problem is a refusal, after RFC 9457.
type Problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Code says the reason in one word of a fixed set, see the constants.
	Code   Code   `json:"code"`
	Detail string `json:"detail"`
	// TraceID is the request's trace, if it was sampled.
	TraceID string `json:"trace_id,omitempty"`
	// Memory says why there was none, if that is the reason.
	Memory *Memory `json:"memory,omitempty"`
}

// Error is the problem on one line.
func (p *Problem) Error() string { return fmt.Sprintf("%d %s: %s", p.Status, p.Code, p.Detail) }

// Code is the reason of a refusal.
type Code string

// The reasons.
const (
	CodeMalformed       Code = "malformed"         // 400
	CodeTooSlow         Code = "upload_too_slow"   // 408
	CodeTooLarge        Code = "too_large"         // 413
	CodeExceedsBudget   Code = "exceeds_budget"    // 413, with Memory: it never fits
	CodeUnsupportedType Code = "unsupported_type"  // 415
	CodeUnprocessable   Code = "unprocessable"     // 422
	CodeTooMany         Code = "too_many_requests" // 429
	CodeClientGone      Code = "client_gone"       // 499, which is not read
	CodeInternal        Code = "internal"          // 500
	CodeOutOfBudget     Code = "out_of_budget"     // 503, with Memory
	CodeOutOfMemory     Code = "out_of_memory"     // 503: the device has less than the budget
	CodeUnavailable     Code = "unavailable"       // 503: the device is lost, or the service stops
	CodeDeadline        Code = "deadline_exceeded" // 504
)

// Memory explains a refusal of memory. Sizes are bytes at that moment; live,
// pending, claimed and quarantined add up to what is charged.
type Memory struct {
	// Asked is the reservation of the whole request, Remaining what it could
	// have got, Limit the budget.
	Asked     uint64 `json:"asked"`
	Remaining uint64 `json:"remaining"`
	Limit     uint64 `json:"limit"`
	// Live is allocated, Pending freed and not yet passed by the device,
	// Claimed reserved and not allocated, Quarantined held by the debug guard.
	Live        uint64 `json:"live"`
	Pending     uint64 `json:"pending"`
	Claimed     uint64 `json:"claimed"`
	Quarantined uint64 `json:"quarantined"`
	// Holders are the largest holders, largest first. MoreHolders is how many more there are, and
	// MoreBytes what they hold.
	Holders     []Holder `json:"holders"`
	MoreHolders uint64   `json:"more_holders,omitempty"`
	MoreBytes   uint64   `json:"more_bytes,omitempty"`
	// WaitedMS is how long the request had waited, in milliseconds. Ahead is how many stood before
	// it in line, AheadBytes what they asked for, AheadTag the tag of the first. Learning: the
	// request was a guess.
	WaitedMS   int64  `json:"waited_ms,omitempty"`
	Ahead      int    `json:"ahead,omitempty"`
	AheadBytes uint64 `json:"ahead_bytes,omitempty"`
	AheadTag   string `json:"ahead_tag,omitempty"`
	Learning   bool   `json:"learning,omitempty"`
}

// Holder is what one tag holds in one state.
type Holder struct {
	Tag   string `json:"tag"`
	State string `json:"state"`
	Bytes uint64 `json:"bytes"`
	// Blocks is how many blocks; reservations if the state is claimed.
	Blocks uint64 `json:"blocks"`
}
