package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/fencepost-gpu/fencepost/examples/service/internal/api"
)

// withDeadline bounds the request by the service's timeout, or by less if its
// client asks for that.
func (s *Server) withDeadline(r *http.Request) (*http.Request, context.CancelFunc, error) {
	timeout := s.limits.Timeout
	if asked := r.Header.Get(api.HeaderTimeout); asked != "" {
		d, err := time.ParseDuration(asked)
		if err != nil || d <= 0 {
			return nil, nil, malformed("%s: %q is no duration above zero, such as 250ms", api.HeaderTimeout, asked)
		}
		timeout = min(timeout, d)
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	return r.WithContext(ctx), cancel, nil
}

// boundUpload makes reads of the body fail at the request's deadline, which
// does not do that by itself. The bound must be lifted when the body is read:
// the server goes on reading, to hear of a client that goes away, and would
// take the bound for one.
func boundUpload(w http.ResponseWriter, r *http.Request) (lift func(), err error) {
	control := http.NewResponseController(w)
	deadline, _ := r.Context().Deadline()
	if err := control.SetReadDeadline(deadline); err != nil {
		if errors.Is(err, http.ErrNotSupported) {
			return func() {}, nil // an in-memory transport, whose reads do not block
		}
		return nil, fmt.Errorf("bounding the upload: %w", err)
	}
	return func() { _ = control.SetReadDeadline(time.Time{}) }, nil
}

// uploadFailed says why a body could not be read to its end.
func uploadFailed(err error) error {
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &refusal{status: http.StatusRequestEntityTooLarge, code: api.CodeTooLarge,
			detail: fmt.Sprintf("the body has more than %d bytes", large.Limit)}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &refusal{status: http.StatusRequestTimeout, code: api.CodeTooSlow,
			detail: "the body did not arrive within the request's time"}
	}
	return err
}
