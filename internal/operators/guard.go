package operators

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/deadline"
	"github.com/fencepost-gpu/fencepost/internal/legible"
)

// maxGuardBody is the largest request in bytes that the handler reads.
const maxGuardBody = 64 << 10

// switchTime bounds a change over HTTP: less than the command waits for, so that
// it hears why.
const switchTime = 20 * time.Second

// GuardChange says what to change of the debug guard's setting; what is nil stays
// as it is.
type GuardChange struct {
	Mode        *string     `json:"mode,omitempty"`
	SampleBytes *uint64     `json:"sample_bytes,omitempty"`
	HuntTags    *[]core.Tag `json:"hunt_tags,omitempty"`
}

// Guard is the debug guard of a device: a handler that shows it and switches it. The
// root package documents it.
type Guard struct {
	// Status is what is shown, as JSON.
	Status func() any
	// Switch may be nil: the guard is not switched then.
	Switch func(context.Context, GuardChange) error

	limit time.Duration // of a change, if not switchTime; for tests
}

// ServeHTTP answers one request.
func (h Guard) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	methods, advice := []string{http.MethodGet, http.MethodHead}, "the guard is not switched here: the program would have to set HandlerConfig.SwitchGuard"
	if h.Switch != nil {
		methods, advice = append(methods, http.MethodPost, http.MethodPut), "use GET to see the guard, POST or PUT to switch it"
	}
	if !allowed(w, req, advice, methods...) {
		return
	}
	if req.Method == http.MethodPost || req.Method == http.MethodPut {
		if err := permit(req, "the guard is switched"); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		if err := h.change(w, req); err != nil {
			http.Error(w, err.Error(), statusOf(err))
			return
		}
	}
	answer(w, http.StatusOK, h.Status())
}

var crossOrigin = http.NewCrossOriginProtection()

// proxyHeaders are what proxies add to what they pass on.
var proxyHeaders = [...]string{"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip", "X-Envoy-External-Address"}

// permit refuses what does not come from this machine; done says what it would
// do. A proxy that hides itself cannot be told from a client here.
func permit(req *http.Request, done string) error {
	peer, err := netip.ParseAddrPort(req.RemoteAddr)
	if err != nil || !peer.Addr().Unmap().IsLoopback() {
		return fmt.Errorf("%s from this machine only, over a loopback address: the request comes from %s", done,
			legible.Value(req.RemoteAddr))
	}
	if !loopbackHost(req.Host) {
		return fmt.Errorf("host %s: address the process as localhost or by a loopback address", legible.Value(req.Host))
	}
	for _, name := range proxyHeaders {
		if len(req.Header.Values(name)) > 0 {
			return fmt.Errorf("%s from this machine only: header %s says that the request came through a proxy", done, name)
		}
	}
	if err := crossOrigin.Check(req); err != nil {
		return fmt.Errorf("%s from no web page of another site: %w", done, err)
	}
	if origin := req.Header.Get("Origin"); origin != "" {
		from, err := url.Parse(origin)
		if err != nil || !loopbackHost(from.Host) {
			return fmt.Errorf("%s from no web page of another site: origin %s", done, legible.Value(origin))
		}
	}
	return nil
}

func (h Guard) change(w http.ResponseWriter, req *http.Request) error {
	req.Body = http.MaxBytesReader(w, req.Body, maxGuardBody)
	change, err := readChange(req)
	if err != nil {
		return err
	}
	if change == (GuardChange{}) {
		return badChange("the request", "names nothing to change: say mode, sample_bytes or hunt_tags")
	}
	// Whole, even if the client goes away.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(req.Context()), cmp.Or(h.limit, switchTime))
	defer cancel()
	return deadline.Within(ctx, func() error { return h.Switch(ctx, change) })
}

func readChange(req *http.Request) (change GuardChange, err error) {
	kind, _, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	if err == nil && kind == "application/json" {
		decoder := json.NewDecoder(req.Body)
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&change); err != nil {
			return change, tooLargeOr(err, `write it as {"mode":"hunt","sample_bytes":65536,"hunt_tags":["a"]}`)
		}
		if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
			return change, badChange("the body", "more than one object")
		}
		return change, nil
	}
	if err := req.ParseForm(); err != nil {
		return change, tooLargeOr(err, "write it as mode=hunt&hunt_tags=a,b")
	}
	return changeOf(req.Form)
}

func changeOf(form url.Values) (change GuardChange, err error) {
	for name, values := range form {
		switch {
		case name == "hunt_tags":
			hunted := []core.Tag{}
			if !slices.Equal(values, []string{""}) {
				if hunted, err = ParseTags(strings.Join(values, ",")); err != nil {
					return change, badChange(name, err.Error())
				}
			}
			change.HuntTags = &hunted
		case len(values) != 1:
			return change, badChange(name, "given several times: say it once")
		case name == "mode":
			change.Mode = &values[0]
		case name == "sample_bytes":
			n, err := strconv.ParseUint(values[0], 10, 64)
			if err != nil {
				return change, badChange(name, legible.Value(values[0])+": write a whole number of bytes")
			}
			change.SampleBytes = &n
		default:
			return change, badChange(name, "unknown: say mode, sample_bytes or hunt_tags")
		}
	}
	return change, nil
}

// ParseTags reads names between commas; blanks around them do not count.
func ParseTags(s string) (tags []core.Tag, err error) {
	for name := range strings.SplitSeq(s, ",") {
		if name = strings.TrimSpace(name); name == "" {
			return nil, errors.New("an empty tag: write the tags with one comma between two")
		}
		tags = append(tags, core.Tag(name))
	}
	return tags, nil
}

func badChange(field, reason string) error {
	return &core.InvalidRequestError{Op: "SwitchGuard", Field: field, Reason: reason}
}

func tooLargeOr(err error, advice string) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return err
	}
	return badChange("the body", fmt.Sprintf("%v: %s", err, advice))
}

func statusOf(err error) int {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return http.StatusRequestEntityTooLarge
	}
	if errors.Is(err, core.ErrInvalidRequest) {
		return http.StatusBadRequest
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, core.ErrClosed) {
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}
