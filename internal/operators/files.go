package operators

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fencepost-gpu/fencepost/internal/operators/shelf"
	"github.com/fencepost-gpu/fencepost/telemetry/dump"
	"github.com/fencepost-gpu/fencepost/telemetry/history"
	"github.com/fencepost-gpu/fencepost/telemetry/incident"
)

// dumpEvery is the time between two dumps that are asked for over HTTP. Each takes
// the place of an older one.
const dumpEvery = time.Minute

// folder serves the files of a device: what is there by number, and
// a dump when somebody of this machine asks.
type folder struct {
	make   func(context.Context) (paths []string, err error)
	shelf  *shelf.Shelf // nil without a folder
	origin *http.CrossOriginProtection
	every  time.Duration

	mu   sync.Mutex
	last time.Time
}

// listedFile is a file as the page lists it.
type listedFile struct {
	Index int       `json:"index"`
	Time  time.Time `json:"time"`
	// Form is "incident", or the format of a dump.
	Form string `json:"form"`
	// What is the kind of the finding, or the trigger of the dump.
	What  string `json:"what"`
	Bytes int64  `json:"bytes"`
}

func newFolder(of Files) *folder {
	h := &folder{make: of.Dump, origin: http.NewCrossOriginProtection(), every: dumpEvery}
	if of.Folder == "" {
		return h
	}
	forms := []shelf.Form{{Name: "incident", Download: "fencepost-incident.json", Is: incident.IsFile, MaxBytes: incident.MaxFile}}
	for format, download := range map[history.Format]string{
		history.JSONLines: "fencepost-dump.jsonl.gz", history.Perfetto: "fencepost-dump.trace.json.gz", history.PyTorch: "fencepost-dump.pickle",
	} {
		forms = append(forms, shelf.Form{Name: string(format), Download: download, MaxBytes: of.MaxDump,
			Is: func(name string) bool { return dump.IsFile(name, format) }})
	}
	h.shelf = shelf.New(of.Folder, forms...)
	return h
}

// serveFiles adds the paths of the files of each device, or nothing but 404.
func serveFiles(mux *http.ServeMux, devices ordinals, served bool) {
	const at = "/debug/gpumem/"
	list, one, dumps := http.NotFoundHandler(), http.NotFoundHandler(), http.NotFoundHandler()
	if served {
		folders := map[*Device]*folder{}
		for _, d := range devices.list {
			folders[d] = newFolder(d.Files)
		}
		of := func(serve func(*folder, http.ResponseWriter, *http.Request), allowed ...string) http.Handler {
			return devices.choose(func(d *Device) http.Handler { return folders[d].only(serve, allowed...) })
		}
		list, one = of((*folder).list, http.MethodGet, http.MethodHead), of((*folder).fetch, http.MethodGet, http.MethodHead)
		dumps = of((*folder).dump, http.MethodPost)
	}
	mux.Handle(at+"incidents", list)
	mux.Handle(at+"incidents/{index}", one)
	mux.Handle(at+"dump", dumps)
}

// only refuses other methods, and everything where there is no folder.
func (h *folder) only(serve func(*folder, http.ResponseWriter, *http.Request), allowed ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch {
		case h.shelf == nil:
			http.Error(w, "this device has no folder for incidents: set Config.Incidents or FENCEPOST_INCIDENTS", http.StatusNotFound)
		case !slices.Contains(allowed, req.Method):
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			http.Error(w, fmt.Sprintf("%s: use %s", req.Method, allowed[0]), http.StatusMethodNotAllowed)
		default:
			serve(h, w, req)
		}
	})
}

func (h *folder) list(w http.ResponseWriter, _ *http.Request) {
	files, err := h.shelf.List()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writeFiles(w, files)
}

func writeFiles(w http.ResponseWriter, files []shelf.File) {
	out := struct {
		Files []listedFile `json:"files"`
	}{[]listedFile{}}
	for _, f := range files {
		out.Files = append(out.Files, describeFile(f))
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_ = json.NewEncoder(w).Encode(out) //nolint:errchkjson // the client went away
}

// describeFile reads a name of the form TIME-NUMBER-WHAT.SUFFIX, or
// TIME-NUMBER-dump-WHAT.SUFFIX: that it is one was checked.
func describeFile(f shelf.File) listedFile {
	const nameTime = "20060102T150405.000000000Z"
	parts := strings.SplitN(f.Name, "-", 3)
	at, _ := time.Parse(nameTime, parts[0]) // zero if no calendar has it
	what, _, _ := strings.Cut(parts[len(parts)-1], ".")
	if f.Form.Name != "incident" {
		what = strings.TrimPrefix(what, "dump-")
	}
	return listedFile{Index: f.Index, Time: at, Form: f.Form.Name, What: what, Bytes: f.Bytes}
}

// fetch hands out one file, for no browser to show.
func (h *folder) fetch(w http.ResponseWriter, req *http.Request) {
	text := req.PathValue("index")
	index, err := strconv.Atoi(text)
	if err != nil || strconv.Itoa(index) != text {
		http.Error(w, "name an incident by its number in the list", http.StatusNotFound)
		return
	}
	file, info, err := h.shelf.Open(index)
	if errors.Is(err, fs.ErrNotExist) {
		http.Error(w, "no such incident: it was never listed, or is gone", http.StatusNotFound)
		return
	}
	if err != nil {
		http.Error(w, "the incident cannot be read", http.StatusInternalServerError)
		return
	}
	defer func() { _ = file.Close() }()
	head := w.Header()
	head.Set("Content-Type", "application/octet-stream")
	head.Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", info.Form.Download))
	head.Set("Content-Length", strconv.FormatInt(info.Bytes, 10))
	head.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	head.Set("Cross-Origin-Resource-Policy", "same-origin")
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Cache-Control", "no-store")
	if req.Method != http.MethodHead {
		_, _ = io.CopyN(w, file, info.Bytes) // the client went away, or the file became shorter
	}
}

// dump makes a dump, and answers with its files.
func (h *folder) dump(w http.ResponseWriter, req *http.Request) {
	if err := permit(req, h.origin, "a dump is made"); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	if wait := h.claim(time.Now()); wait > 0 {
		seconds := int(wait/time.Second) + 1
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
		http.Error(w, fmt.Sprintf("there was a dump a moment ago: ask again in %d s", seconds), http.StatusTooManyRequests)
		return
	}
	// Whole, even if the client goes away.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(req.Context()), switchTime)
	defer cancel()
	paths, err := h.make(ctx)
	if err != nil {
		http.Error(w, err.Error(), statusOf(err))
		return
	}
	files, err := h.shelf.List()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writeFiles(w, slices.DeleteFunc(files, func(f shelf.File) bool {
		return !slices.ContainsFunc(paths, func(path string) bool { return filepath.Base(path) == f.Name })
	}))
}

// claim takes the turn for a dump, or says how long to wait for it.
func (h *folder) claim(now time.Time) (wait time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if wait = h.every - now.Sub(h.last); !h.last.IsZero() && wait > 0 {
		return wait
	}
	h.last = now
	return 0
}
