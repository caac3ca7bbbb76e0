package logging

import (
	"context"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/fencepost-gpu/fencepost/core"
)

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
