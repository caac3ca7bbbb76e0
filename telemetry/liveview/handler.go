package liveview

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
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
	past      *shared // nil if it is not kept
	timeline  *shared // likewise
	// listing is held while blocks are listed in detail: one list at a time.
	listing sync.Mutex
}

// How often the map, the past and the timeline of a device are made anew at most.
const (
	mapInterval      = 500 * time.Millisecond
	pastInterval     = time.Second
	timelineInterval = time.Second
)

func newViewed(s Source) *viewed {
	inspector := s.Resource.Inspect()
	d := &viewed{source: s, inspector: inspector, zoomer: &zoomer{inspector: inspector}}
	d.whole = &shared{interval: mapInterval, make: func(serial uint64) any { return newAddressMap(inspector, serial, newCoverage(partShift), everything) }}
	if s.Past != nil && s.Holders != nil {
		d.past = &shared{interval: pastInterval, make: func(uint64) any { return s.reconstruct() }}
	}
	if s.Device != nil {
		d.timeline = &shared{interval: timelineInterval, make: func(uint64) any { return timelineOf(s.Device(), time.Now()) }}
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
// and asks for "state", "past", "map", "blocks" and "timeline" beside it. No device, one without a
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
	for path, answer := range map[string]func(*query) any{"/state": v.answerState, "/blocks": (*query).blocks, "/map": (*query).zoom, "/past": (*query).past, "/timeline": (*query).timeline} {
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

// serve answers a query as JSON, or says what is wrong with it.
func (v *View) serve(w http.ResponseWriter, r *http.Request, answer func(*query) any) {
	q := &query{values: r.URL.Query(), gone: r.Context().Done(), status: http.StatusBadRequest}
	q.device, q.err = v.device(q.values.Get("device"))
	out := any(nil)
	if q.err == nil {
		out = answer(q)
	}
	if q.err != nil {
		http.Error(w, q.err.Error(), q.status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(out) //nolint:errchkjson // the client went away
}

// device is the one of that ordinal, or the first.
func (v *View) device(text string) (*viewed, error) {
	if text == "" {
		return v.devices[0], nil
	}
	var ordinals []int
	for _, d := range v.devices {
		ordinal := d.source.Resource.Ordinal()
		if text == strconv.Itoa(ordinal) {
			return d, nil
		}
		ordinals = append(ordinals, ordinal)
	}
	return nil, fmt.Errorf("device %q: say one of %v", text, ordinals)
}

// query is what a page asks of a device. An answer that comes with an err is not
// sent.
type query struct {
	device *viewed
	values url.Values
	gone   <-chan struct{} // closed when the client has gone
	err    error           // the first, which is answered with status
	status int
}

// number is a number of the query, in decimal or as 0x and hexadecimal.
func (q *query) number(name string, otherwise uint64) uint64 {
	text := q.values.Get(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 0, 64)
	if err != nil && q.err == nil {
		q.err = fmt.Errorf("%s %q: write a number, such as 4096 or 0x1000", name, text)
	}
	return n
}

// stretch is the addresses of the query.
func (q *query) stretch(end uint64) stretch {
	s := stretch{q.number("from", 0), q.number("to", end)}
	if q.err == nil && s.from >= s.to {
		q.err = errors.New("from: say an address below to")
	}
	return s
}

func (v *View) answerState(q *query) any {
	has := known{mapSerial: q.number("map", 0), findings: q.number("findings", 0), refusals: q.number("refusals", 0)}
	if q.err != nil {
		return nil
	}
	return v.state(q.device, has)
}

// blocks lists blocks. The answer is written without the lock: a client may take
// it slowly, or never.
func (q *query) blocks() any {
	of := q.stretch(everything.to)
	if q.err != nil {
		return nil
	}
	q.device.listing.Lock()
	defer q.device.listing.Unlock()
	return blocksIn(q.device.inspector, of)
}

// zoom is the map of a stretch, or nothing if the page has it.
func (q *query) zoom() any {
	of, has := q.stretch(0), q.number("map", 0)
	if q.err != nil {
		return nil
	}
	if a := q.device.zoomer.newest(of, q.gone); a != nil && a.serial != has {
		return a.text
	}
	return nil
}

func (q *query) past() any { return q.kept(q.device.past) }

func (q *query) timeline() any { return q.kept(q.device.timeline) }

// kept is what is made for all pages together, if it is.
func (q *query) kept(s *shared) any {
	if s == nil {
		q.err, q.status = errors.New("the history of this device is not kept"), http.StatusNotFound
		return nil
	}
	return s.newest().text
}
