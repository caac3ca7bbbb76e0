package operators

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"

	"github.com/fencepost-gpu/fencepost/core"
)

// ordinals are devices by the text of their ordinals.
type ordinals struct {
	devices map[string]*Device
	list    []*Device
}

// add takes a device in, unless there is one of its ordinal.
func (o *ordinals) add(d *Device) error {
	ordinal := strconv.Itoa(d.Ordinal)
	if o.devices[ordinal] != nil {
		return badRuntimes("two for device " + ordinal)
	}
	o.devices[ordinal] = d
	o.list = append(o.list, d)
	return nil
}

func badRuntimes(reason string) error {
	return &core.InvalidRequestError{Op: "fencepost.NewHandler", Field: "Runtimes", Reason: reason}
}

// each makes a handler for each device.
func (o ordinals) each(of func(*Device) http.Handler) (handlers []http.Handler) {
	for _, d := range o.list {
		handlers = append(handlers, of(d))
	}
	return handlers
}

// choose serves the handler of the device that the query names. It may be left
// out if there is one only.
func (o ordinals) choose(of func(*Device) http.Handler) http.Handler {
	handlers := map[string]http.Handler{}
	for ordinal, d := range o.devices {
		handlers[ordinal] = of(d)
	}
	if len(o.list) == 1 {
		handlers[""] = of(o.list[0])
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		query := req.URL.Query()
		h, ok := handlers[query.Get("device")]
		if !ok {
			http.Error(w, fmt.Sprintf("device %q: say ?device= and one of %v", query.Get("device"), o.names()), http.StatusBadRequest)
			return
		}
		if query.Has("device") { // it is said
			query.Del("device")
			req = req.Clone(req.Context())
			req.URL.RawQuery = query.Encode()
		}
		h.ServeHTTP(w, req)
	})
}

func (o ordinals) names() (names []int) {
	for _, d := range o.list {
		names = append(names, d.Ordinal)
	}
	return names
}

// worst answers with the worst answer of several devices, which is the one with
// the highest status, and the bodies of all as a list of JSON.
func worst(handlers []http.Handler) http.Handler {
	if len(handlers) == 1 {
		return handlers[0]
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var bodies []json.RawMessage
		worst := &answer{}
		for _, h := range handlers {
			a := &answer{header: http.Header{}, status: http.StatusOK}
			h.ServeHTTP(a, req)
			if a.status > worst.status {
				worst = a
			}
			bodies = append(bodies, a.body.Bytes())
		}
		maps.Copy(w.Header(), worst.header)
		body := worst.body.Bytes()
		if list, err := json.Marshal(bodies); err == nil { // they are JSON, and no refusals of the method
			body = list
		}
		w.WriteHeader(worst.status)
		_, _ = w.Write(body) // the client went away
	})
}

// answer is a response in memory.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header is the header.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader notes the status.
func (a *answer) WriteHeader(status int) { a.status = status }

// Write keeps the body.
func (a *answer) Write(p []byte) (int, error) { return a.body.Write(p) }
