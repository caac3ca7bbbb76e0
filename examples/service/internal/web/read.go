package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"time"

	"github.com/fencepost-gpu/fencepost/examples/service/internal/api"
)

// deadline bounds the request by the service's timeout, or by less if its client
// asks for that.
func (s *Server) deadline(r *http.Request) (context.Context, context.CancelFunc, error) {
	timeout := s.cfg.Limits.Timeout
	if asked := r.Header.Get(api.HeaderTimeout); asked != "" {
		d, err := time.ParseDuration(asked)
		if err != nil || d <= 0 {
			return nil, nil, malformed("%s: %q is no duration above zero, such as 250ms", api.HeaderTimeout, asked)
		}
		timeout = min(timeout, d)
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	return ctx, cancel, nil
}

// read reads the request's body within its bounds.
func (s *Server) read(ctx context.Context, w http.ResponseWriter, r *http.Request, to any) error {
	if form, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || form != api.JSON {
		return refused(http.StatusUnsupportedMediaType, api.CodeUnsupportedType, "Content-Type %q: send %s", r.Header.Get("Content-Type"), api.JSON)
	}
	lift, err := boundUpload(ctx, w)
	if err != nil {
		return err
	}
	defer lift()
	err = strictJSON(http.MaxBytesReader(w, r.Body, s.cfg.Limits.MaxBody), to)
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return refused(http.StatusRequestEntityTooLarge, api.CodeTooLarge, "the body has more than %d bytes", large.Limit)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return refused(http.StatusRequestTimeout, api.CodeTooSlow, "the body did not arrive within the request's time")
	case r.Context().Err() != nil: // the client went away
		return r.Context().Err()
	}
	return malformed("the JSON: %v", err)
}

// boundUpload makes reads of the body fail at the request's deadline, which
// does not do that by itself. The bound must be lifted when the body is read:
// the server goes on reading, to hear of a client that goes away, and would
// take the bound for one.
func boundUpload(ctx context.Context, w http.ResponseWriter) (lift func(), err error) {
	control := http.NewResponseController(w)
	deadline, _ := ctx.Deadline()
	if err := control.SetReadDeadline(deadline); err != nil {
		if errors.Is(err, http.ErrNotSupported) {
			return func() {}, nil // an in-memory transport, whose reads do not block
		}
		return nil, fmt.Errorf("bounding the upload: %w", err)
	}
	return func() { _ = control.SetReadDeadline(time.Time{}) }, nil
}

// strictJSON reads exactly one value and refuses names that it does not know:
// a misspelt column is a mistake, and no empty column.
func strictJSON(body io.Reader, to any) error {
	d := json.NewDecoder(body)
	d.DisallowUnknownFields()
	err := d.Decode(to)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("it ends too early")
	}
	if err != nil {
		return err
	}
	if _, err := d.Token(); err == nil {
		return errors.New("there is more behind the value")
	} else if !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}
