package history

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/telemetry/internal/blocks"
)

// Source is a history and what completes it.
type Source struct {
	// Events returns a copy of the history, in the order of its log: an
	// allocation by its end, everything else by its beginning. Required.
	Events func() []oplog.Event
	// JSONLines writes the history as its logger does. Nil leaves out the
	// format JSONLines.
	JSONLines func(io.Writer) error
	// Resources are the stacks that the history is of, outermost layers. The
	// blocks that they list complete a history that has lost its beginning,
	// and their stacks go into the snapshot. None is asked for anything else.
	Resources []core.Resource
	// Findings returns the findings to be marked; nil for none. Those that are
	// older than the history are left out.
	Findings func() []core.Finding

	// listed are the blocks as [Source.ListNow] found them.
	listed map[core.Generation]listedBlock
	// listedAt is when ListNow began, zero if there are no resources.
	listedAt time.Time
}

// ListNow returns the source with the blocks of its resources as they are now,
// for a history that is kept to be written later, or in several formats. It
// must be called before the events are copied: what is allocated in between
// is then in the events, and what is freed in between is in both. A ring that gives up the
// record of such a free before the copy leaves the block held to the end. It makes no
// device call.
func (s Source) ListNow() Source {
	s.listed = map[core.Generation]listedBlock{}
	if len(s.Resources) > 0 {
		s.listedAt = time.Now()
	}
	for _, r := range s.Resources {
		for b := range blocks.Of(r) {
			if b.Block.State != core.Freed {
				s.listed[b.Block.ID.Generation] = listedBlock{memory: memoryOf(b.Block.ID, b.Block.Bytes, b.Block.Requested, b.Block.Tag), state: b.Block.State, stack: b.AllocStack}
			}
		}
	}
	s.Resources = nil
	return s
}

// Format is a form in which a history is written.
type Format string

// The formats.
const (
	// JSONLines is the lines of decorators/logging, which replay reads.
	JSONLines Format = "jsonl"
	// Perfetto is a trace in Chrome's JSON trace event format, for
	// ui.perfetto.dev and chrome://tracing.
	Perfetto Format = "perfetto"
	// PyTorch is a pickled memory snapshot as of PyTorch's caching allocator,
	// for its memory_viz page and its scripts.
	PyTorch Format = "pytorch"
)

// Formats are all formats.
func Formats() []Format { return []Format{JSONLines, Perfetto, PyTorch} }

// ErrUnavailable is the error of a format that a source does not have.
var ErrUnavailable = errors.New("history: the source does not have this format")

// ParseFormat reads a format; the error names those that there are.
func ParseFormat(text string) (Format, error) {
	if f := Format(text); slices.Contains(Formats(), f) {
		return f, nil
	}
	return "", fmt.Errorf("format %q: say one of %v", text, Formats())
}

// Write writes the history to w in format f. It makes no device call. Beside
// the copy of the history it needs a few hundred bytes an event; the output
// is streamed. The error is w's, [ErrUnavailable], or says which event cannot
// be exported.
func (s Source) Write(w io.Writer, f Format) error {
	write, err := s.prepare(f)
	if err != nil {
		return err
	}
	return write(w)
}

// prepare does what may fail for other reasons than the writer.
func (s Source) prepare(f Format) (func(io.Writer) error, error) {
	if _, err := ParseFormat(string(f)); err != nil {
		return nil, err
	}
	if f == JSONLines {
		if s.JSONLines == nil {
			return nil, ErrUnavailable
		}
		return s.JSONLines, nil
	}
	h, err := s.load()
	if err != nil {
		return nil, err
	}
	if f == Perfetto {
		return h.writeTrace, nil
	}
	return h.writeSnapshot, nil
}

// patience is how long a client may take over a history while others wait.
const patience = time.Minute

// Handler serves the history of s in the format that the query's format
// names: "jsonl", which is the default, "perfetto" or "pytorch". It is usually
// mounted at /debug/gpumem/history. Only GET and HEAD are answered. Requests
// are answered one at a time, so that many of them take no more memory than
// one; who waits may leave, and who does not read for a minute is cut off. It is
// safe for concurrent use.
//
// It changes nothing, but it shows tags, names of launches and addresses: who
// may reach it is the mount's to say.
func Handler(s Source) http.Handler {
	turn := make(chan struct{}, 1)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, turn, patience) })
}

// files are how each format is sent.
var files = map[Format]struct{ contentType, name string }{
	JSONLines: {"application/x-ndjson", "gpumem-history.jsonl"},
	Perfetto:  {"application/json", "gpumem-history.trace.json"},
	PyTorch:   {"application/octet-stream", "gpumem-history.pickle"},
}

// serve answers a request when turn, which is full while a request is answered, has
// room for it.
func (s Source) serve(w http.ResponseWriter, r *http.Request, turn chan struct{}, patience time.Duration) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "use GET", http.StatusMethodNotAllowed)
		return
	}
	format := JSONLines
	if text := r.FormValue("format"); text != "" {
		format = Format(text)
	}
	if _, err := ParseFormat(string(format)); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-r.Context().Done():
		return
	}
	write, err := s.prepare(format)
	if err != nil {
		status := http.StatusInternalServerError
		if errors.Is(err, ErrUnavailable) {
			status = http.StatusNotFound
		}
		http.Error(w, err.Error(), status)
		return
	}
	w.Header().Set("Content-Type", files[format].contentType)
	w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", files[format].name))
	if r.Method != http.MethodGet {
		return
	}
	connection := http.NewResponseController(w)
	if connection.SetWriteDeadline(time.Now().Add(patience)) == nil {
		defer func() { _ = connection.SetWriteDeadline(time.Time{}) }() // the next request has its own
	}
	_ = write(w) // the client went away
}
