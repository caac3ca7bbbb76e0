package operators

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fencepost-gpu/fencepost/telemetry/dump"
	"github.com/fencepost-gpu/fencepost/telemetry/history"
	"github.com/fencepost-gpu/fencepost/telemetry/incident"
)

// dumpEvery is the time between two dumps that are asked for over HTTP. Each takes
// the place of an older one.
const dumpEvery = time.Minute

// folder serves the files of a device: what is there by number, and
// a dump when a client of this machine asks.
type folder struct {
	make  func(context.Context) (paths []string, err error)
	files *fileList // nil without a folder

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
	h := &folder{make: of.Dump}
	if of.Folder == "" {
		return h
	}
	forms := []fileForm{{Name: "incident", Download: "fencepost-incident.json", Is: incident.IsFile, MaxBytes: incident.MaxFile}}
	for format, download := range map[history.Format]string{
		history.JSONLines: "fencepost-dump.jsonl.gz", history.Perfetto: "fencepost-dump.trace.json.gz", history.PyTorch: "fencepost-dump.pickle",
	} {
		forms = append(forms, fileForm{Name: string(format), Download: download, MaxBytes: of.MaxDump,
			Is: func(name string) bool { return dump.IsFile(name, format) }})
	}
	h.files = newFileList(of.Folder, forms...)
	return h
}

// serveFiles adds the paths of the files of each device, or nothing but 404.
func serveFiles(mux *http.ServeMux, all devices, served bool) {
	folders := map[int]*folder{}
	for _, d := range all {
		folders[d.Ordinal] = newFolder(d.Files)
	}
	at := func(path string, serve func(*folder, http.ResponseWriter, *http.Request), methods ...string) {
		h := http.NotFoundHandler()
		if served {
			h = all.choose(func(d *Device) http.Handler { return folders[d.Ordinal].only(serve, methods...) })
		}
		mux.Handle("/debug/gpumem/"+path, h)
	}
	at("incidents", (*folder).list, http.MethodGet, http.MethodHead)
	at("incidents/{index}", (*folder).fetch, http.MethodGet, http.MethodHead)
	at("dump", (*folder).dump, http.MethodPost)
}

// only refuses other methods, and everything where there is no folder.
func (h *folder) only(serve func(*folder, http.ResponseWriter, *http.Request), methods ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if h.files == nil {
			http.Error(w, "this device has no folder for incidents: set Config.Incidents or FENCEPOST_INCIDENTS", http.StatusNotFound)
		} else if allowed(w, req, "use "+methods[0], methods...) {
			serve(h, w, req)
		}
	})
}

func (h *folder) list(w http.ResponseWriter, _ *http.Request) {
	files, err := h.files.list()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writeFiles(w, files)
}

func writeFiles(w http.ResponseWriter, files []numberedFile) {
	out := struct {
		Files []listedFile `json:"files"`
	}{[]listedFile{}}
	for _, f := range files {
		out.Files = append(out.Files, describeFile(f))
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	answer(w, http.StatusOK, out)
}

// describeFile reads a name of the form TIME-NUMBER-WHAT.SUFFIX, or
// TIME-NUMBER-dump-WHAT.SUFFIX: that it is one was checked.
func describeFile(f numberedFile) listedFile {
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
	file, info, err := h.files.open(index)
	if errors.Is(err, fs.ErrNotExist) {
		http.Error(w, "no such incident: it was never listed, or is gone", http.StatusNotFound)
		return
	}
	if err != nil {
		http.Error(w, "the incident cannot be read", http.StatusInternalServerError)
		return
	}
	defer func() { _ = file.Close() }()
	attach(w, info.Form.Download)
	head := w.Header()
	head.Set("Content-Length", strconv.FormatInt(info.Bytes, 10))
	head.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	head.Set("Cross-Origin-Resource-Policy", "same-origin")
	head.Set("Cache-Control", "no-store")
	if req.Method != http.MethodHead {
		_, _ = io.CopyN(w, file, info.Bytes) // the client went away, or the file became shorter
	}
}

// dump makes a dump, and answers with its files.
func (h *folder) dump(w http.ResponseWriter, req *http.Request) {
	if err := permit(req, "a dump is made"); err != nil {
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
	files, err := h.files.list()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writeFiles(w, slices.DeleteFunc(files, func(f numberedFile) bool {
		return !slices.ContainsFunc(paths, func(path string) bool { return filepath.Base(path) == f.Name })
	}))
}

// claim takes the turn for a dump, or says how long to wait for it.
func (h *folder) claim(now time.Time) (wait time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if wait = dumpEvery - now.Sub(h.last); !h.last.IsZero() && wait > 0 {
		return wait
	}
	h.last = now
	return 0
}

// maxListed is how many files are listed, the newest.
const maxListed = 64

// fileForm is a sort of files.
type fileForm struct {
	// Name tells the forms apart, and Download is what a file is called that was
	// fetched, whatever it is called here.
	Name, Download string
	// Is says which names are of the form. They begin with a time, so that the
	// newest sort last.
	Is func(name string) bool
	// MaxBytes is the largest that is listed and handed out.
	MaxBytes int64
}

// fileList hands out the files of a folder by number: a client names no path. The
// numbers are those of files that were listed, whose names are of a known form, and
// what is no regular file of a bounded size is not there. It is safe for concurrent use.
type fileList struct {
	dir   string
	forms []fileForm

	mu      sync.Mutex
	numbers map[string]int // of the names listed last
	last    int
}

// newFileList lists a folder, which need not be there yet.
func newFileList(dir string, forms ...fileForm) *fileList {
	return &fileList{dir: dir, forms: forms, numbers: map[string]int{}}
}

// numberedFile is one that is listed.
type numberedFile struct {
	// Index is the file's number for as long as it is listed. It is never that of
	// another one.
	Index int
	Name  string
	Form  fileForm
	Bytes int64
}

// list is the newest files, newest first.
func (s *fileList) list() ([]numberedFile, error) {
	root, err := os.OpenRoot(s.dir)
	if errors.Is(err, fs.ErrNotExist) { // nothing was written yet
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, err
	}
	var files []numberedFile
	for _, e := range entries {
		if form, ok := s.form(e.Name()); ok && e.Type().IsRegular() {
			if info, err := root.Lstat(e.Name()); err == nil && form.takes(info) { // else it is gone
				files = append(files, numberedFile{Name: e.Name(), Form: form, Bytes: info.Size()})
			}
		}
	}
	slices.SortFunc(files, func(a, b numberedFile) int { return strings.Compare(b.Name, a.Name) })
	files = files[:min(len(files), maxListed)]
	s.number(files)
	return files, nil
}

func (s *fileList) form(name string) (fileForm, bool) {
	i := slices.IndexFunc(s.forms, func(f fileForm) bool { return f.Is(name) })
	if i < 0 {
		return fileForm{}, false
	}
	return s.forms[i], true
}

func (f *fileForm) takes(info fs.FileInfo) bool {
	return info.Mode().IsRegular() && info.Size() <= f.MaxBytes
}

// number gives new files numbers, the oldest the lowest, and forgets those that
// are listed no more.
func (s *fileList) number(files []numberedFile) {
	s.mu.Lock()
	defer s.mu.Unlock()
	numbers := make(map[string]int, len(files))
	for i := range slices.Backward(files) {
		name := files[i].Name
		n := s.numbers[name]
		if n == 0 {
			s.last++
			n = s.last
		}
		numbers[name], files[i].Index = n, n
	}
	s.numbers = numbers
}

// open opens the file of a number that list told. Its size is what may be
// read of it. The error of one that was not listed, is gone, or is no file that
// would be listed now, matches [fs.ErrNotExist].
func (s *fileList) open(index int) (*os.File, numberedFile, error) {
	name := s.name(index)
	form, ok := s.form(name)
	if !ok {
		return nil, numberedFile{}, fs.ErrNotExist
	}
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return nil, numberedFile{}, err
	}
	defer root.Close()
	named, err := root.Lstat(name)
	if err != nil || !form.takes(named) {
		return nil, numberedFile{}, cmp.Or(err, fs.ErrNotExist)
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, numberedFile{}, err
	}
	// What was opened is what was looked at, and no link that took its place.
	opened, err := f.Stat()
	if err != nil || !os.SameFile(named, opened) || !form.takes(opened) {
		return nil, numberedFile{}, errors.Join(cmp.Or(err, fs.ErrNotExist), f.Close())
	}
	return f, numberedFile{Index: index, Name: name, Form: form, Bytes: opened.Size()}, nil
}

func (s *fileList) name(index int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, n := range s.numbers {
		if n == index {
			return name
		}
	}
	return ""
}
