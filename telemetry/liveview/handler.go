package liveview

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"sync"

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

// viewed is a device with its map.
type viewed struct {
	source Source
	mapper *mapper
	zoomer *zoomer
	past   *historian // nil if nobody keeps it
	// listing is held while blocks are listed in detail: one list at a time.
	listing sync.Mutex
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
		d := &viewed{source: s, mapper: newMapper(s.Resource), zoomer: &zoomer{inspector: s.Resource.Inspect()}}
		if s.Past != nil && s.Holders != nil {
			d.past = &historian{source: s}
		}
		v.devices = append(v.devices, d)
	}
	files, err := fs.Sub(embedded, "assets")
	if err != nil {
		return nil, err
	}
	v.mux.Handle("GET /{$}", http.FileServerFS(files))
	v.mux.Handle("GET /{file}", http.FileServerFS(files))
	v.mux.Handle("GET /uplot/{file}", http.FileServerFS(files))
	v.mux.HandleFunc("GET /state", v.serveState)
	v.mux.HandleFunc("GET /blocks", v.serveBlocks)
	v.mux.HandleFunc("GET /map", v.serveMap)
	v.mux.HandleFunc("GET /past", v.servePast)
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

func (v *View) serveState(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	d, err := v.device(query)
	var has known
	for name, into := range map[string]*uint64{"map": &has.mapSerial, "findings": &has.findings, "refusals": &has.refusals} {
		if err == nil {
			*into, err = number(query, name, 0)
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	writeJSON(w, v.state(d, has))
}

func (v *View) serveBlocks(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	d, err := v.device(query)
	var from, to uint64
	if err == nil {
		from, err = number(query, "from", 0)
	}
	if err == nil {
		to, err = number(query, "to", ^uint64(0))
	}
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
	case from >= to:
		http.Error(w, "from: say an address below to", http.StatusBadRequest)
	default:
		writeJSON(w, d.blocks(from, to))
	}
}

// blocks lists blocks. The answer is written without the lock: a client may take
// it slowly, or never.
func (d *viewed) blocks(from, to uint64) details {
	d.listing.Lock()
	defer d.listing.Unlock()
	return blocksIn(d.mapper.inspector, from, to)
}

// device is the one that the query names by its ordinal, or the first.
func (v *View) device(query url.Values) (*viewed, error) {
	text := query.Get("device")
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

// number reads a number of the query, in decimal or as 0x and hexadecimal.
func number(query url.Values, name string, otherwise uint64) (uint64, error) {
	text := query.Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseUint(text, 0, 64)
	if err != nil {
		return 0, fmt.Errorf("%s %q: write a number, such as 4096 or 0x1000", name, text)
	}
	return n, nil
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(v) //nolint:errchkjson // the client went away
}
