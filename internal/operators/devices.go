package operators

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/fencepost-gpu/fencepost/core"
)

// devices are of different ordinals.
type devices []Device

func badRuntimes(reason string) error {
	return &core.InvalidRequestError{Op: "fencepost.NewHandler", Field: "Runtimes", Reason: reason}
}

func (all devices) check() error {
	if len(all) == 0 {
		return badRuntimes("none: pass at least one")
	}
	seen := map[int]bool{}
	for _, d := range all {
		if seen[d.Ordinal] {
			return badRuntimes(fmt.Sprintf("two for device %d", d.Ordinal))
		}
		seen[d.Ordinal] = true
	}
	return nil
}

// choose serves the handler of the device that the query names. It may be left
// out if there is one only.
func (all devices) choose(of func(*Device) http.Handler) http.Handler {
	handlers := map[string]http.Handler{}
	var ordinals []int
	for i := range all {
		d := &all[i]
		handlers[strconv.Itoa(d.Ordinal)] = of(d)
		ordinals = append(ordinals, d.Ordinal)
	}
	if len(all) == 1 {
		handlers[""] = handlers[strconv.Itoa(ordinals[0])]
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		query := req.URL.Query()
		h, ok := handlers[query.Get("device")]
		if !ok {
			http.Error(w, fmt.Sprintf("device %q: say ?device= and one of %v", query.Get("device"), ordinals), http.StatusBadRequest)
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
