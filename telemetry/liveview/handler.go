package liveview

import (
	"embed"
	"fmt"
	"io/fs"
	"net/http"
	"sync"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

//go:embed assets
var embedded embed.FS

// policy lets the page load its own files and nothing else, run no inline
// script, and be put into no other page.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// View is the page and its state, an [http.Handler]. It is safe for concurrent
// use.
type View struct {
	devices []*viewed
	links   []Link
	mux     *http.ServeMux
}

// viewed is a device, with what is made for all pages together.
type viewed struct {
	source    Source
	inspector core.Inspector
	whole     *shared // the map of all blocks
	zoomer    *zoomer
	past      *shared // nil if nobody keeps it
	// listing is held while blocks are listed in detail: one list at a time.
	listing sync.Mutex
}

// How often the map and the past of a device are made anew at most.
const (
	mapInterval  = 500 * time.Millisecond
	pastInterval = time.Second
)

func newViewed(s Source) *viewed {
	inspector := s.Resource.Inspect()
	d := &viewed{source: s, inspector: inspector, zoomer: &zoomer{inspector: inspector}}
	d.whole = &shared{interval: mapInterval, make: func(serial uint64) any { return newAddressMap(inspector, serial, newCoverage(partShift), everything) }}
	if s.Past != nil && s.Holders != nil {
		d.past = &shared{interval: pastInterval, make: func(uint64) any { return s.reconstruct() }}
	}
	return d
}

// Config is what a [View] shows.
type Config struct {
	// Devices are shown one at a time. At least one is required.
	Devices []Source
	// Links are shown beside the page's title.
	Links []Link
}

// New returns a view, to be mounted with its prefix stripped: the page is "/",
// and asks for "state", "past", "map" and "blocks" beside it. No device, one without a
// resource, or two of one ordinal are a [core.InvalidRequestError].
func New(cfg Config) (*View, error) {
	if len(cfg.Devices) == 0 {
		return nil, invalid("Devices", "none: pass at least one")
	}
	v := &View{links: append([]Link{}, cfg.Links...), mux: http.NewServeMux()}
	seen := map[int]bool{}
	for _, s := range cfg.Devices {
		if s.Resource == nil {
			return nil, invalid("Resource", "nil: pass the outermost layer of the device's stack")
		}
		ordinal := s.Resource.Ordinal()
		if seen[ordinal] {
			return nil, invalid("Devices", fmt.Sprintf("two for device %d", ordinal))
		}
		seen[ordinal] = true
		v.devices = append(v.devices, newViewed(s))
	}
	files, err := fs.Sub(embedded, "assets")
	if err != nil {
		return nil, err
	}
	for _, path := range []string{"/{$}", "/{file}", "/uplot/{file}"} {
		v.mux.Handle("GET "+path, http.FileServerFS(files))
	}
	for path, answer := range map[string]func(*query) any{"/state": v.answerState, "/blocks": (*query).blocks, "/map": (*query).zoom, "/past": (*query).past} {
		v.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) { v.serve(w, r, answer) })
	}
	return v, nil
}

func invalid(field, reason string) error {
	return &core.InvalidRequestError{Op: "liveview.New", Field: field, Reason: reason}
}

// ServeHTTP serves the page, its files, and what it asks for.
func (v *View) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-cache") // the files change with the program
	v.mux.ServeHTTP(w, r)
}
