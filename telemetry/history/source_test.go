package history_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
	"github.com/fencepost-gpu/fencepost/telemetry/history"
)

func get(t *testing.T, h http.Handler, method, url string) (*httptest.ResponseRecorder, []byte) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, url, nil))
	return w, w.Body.Bytes()
}

func TestTheHandlerServesEachFormat(t *testing.T) {
	rt, source := open(t, hunting())
	b := allocate(t, rt, 100, 0, "rows")
	free(t, rt, b)
	h := history.Handler(source)
	for _, c := range []struct{ url, contentType, name string }{
		{"/debug/gpumem/history", "application/x-ndjson", "gpumem-history.jsonl"},
		{"/debug/gpumem/history?format=jsonl", "application/x-ndjson", "gpumem-history.jsonl"},
		{"/debug/gpumem/history?format=perfetto", "application/json", "gpumem-history.trace.json"},
		{"/debug/gpumem/history?format=pytorch", "application/octet-stream", "gpumem-history.pickle"},
	} {
		r, body := get(t, h, http.MethodGet, c.url)
		if r.Code != http.StatusOK || r.Header().Get("Content-Type") != c.contentType || r.Header().Get("X-Content-Type-Options") != "nosniff" ||
			!strings.Contains(r.Header().Get("Content-Disposition"), c.name) || len(body) == 0 {
			t.Errorf("%s: %d with %v and %d bytes", c.url, r.Code, r.Header(), len(body))
		}
		if head, none := get(t, h, http.MethodHead, c.url); head.Code != http.StatusOK || len(none) != 0 {
			t.Errorf("HEAD %s: %d and %d bytes", c.url, head.Code, len(none))
		}
	}
	_, trace := get(t, h, http.MethodGet, "/?format=perfetto")
	readTrace(t, trace)
	_, lines := get(t, h, http.MethodGet, "/")
	if n := bytes.Count(lines, []byte{'\n'}); n != len(source.Events()) {
		t.Errorf("%d lines of %d events", n, len(source.Events()))
	}
}

func TestWhatIsNotThereIsRefused(t *testing.T) {
	bad := []oplog.Event{{Op: oplog.OpReap, Ordinal: -1}}
	h := history.Handler(history.Source{Events: func() []oplog.Event { return bad }})
	for url, want := range map[string]int{"/?format=svg": 400, "/": 404, "/?format=jsonl": 404, "/?format=perfetto": 500} {
		if r, body := get(t, h, http.MethodGet, url); r.Code != want || len(body) == 0 {
			t.Errorf("%s: %d %s", url, r.Code, body)
		}
	}
	if r, _ := get(t, h, http.MethodDelete, "/"); r.Code != http.StatusMethodNotAllowed || r.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("DELETE: %d", r.Code)
	}
	expect.Error(t, (history.Source{}).Write(io.Discard, history.JSONLines), history.ErrUnavailable)
	if err := (history.Source{}).Write(io.Discard, "svg"); err == nil {
		t.Error("svg was written")
	}
}

var errFull = errors.New("disk full")

// room takes so many bytes and then no more.
type room int

func (r *room) Write(p []byte) (int, error) {
	if *r -= room(len(p)); *r < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestEveryFormatReportsAWriterThatFails(t *testing.T) {
	rt, source := open(t, hunting())
	free(t, rt, allocate(t, rt, 100, 0, "rows"))
	for _, format := range history.Formats() {
		for _, bytes := range []room{0, 100} {
			expect.Error(t, source.Write(&bytes, format), errFull, format)
		}
	}
}

// A dump that is read back says what the ring said: its exports are the same
// to the byte, and replay finds its allocations.
func TestADumpReadBackIsExportedLikeTheRing(t *testing.T) {
	rt, source := open(t, fencepost.Config{Guard: "off"})
	s := streams(t, rt, 3)
	for i := range 100 {
		b := allocate(t, rt, uint64(1+i)*100, s[i%3], "rows")
		launch(t, rt, "fill", s[i%3], core.Write, b)
		launch(t, rt, "read", s[(i+1)%3], core.Read, b)
		free(t, rt, b)
	}
	must.Do(t, rt.Drain(t.Context()))
	events := source.Events()
	direct := history.Source{Events: func() []oplog.Event { return events }}
	dump := export(t, source, history.JSONLines)
	read := must.Get(alloctrace.ReadEvents("dump", bytes.NewReader(dump)))(t)
	back := history.Source{Events: func() []oplog.Event { return read }}
	for _, format := range []history.Format{history.Perfetto, history.PyTorch} {
		if a, b := export(t, direct, format), export(t, back, format); !bytes.Equal(a, b) {
			t.Errorf("%s: %d bytes of the ring, %d of the dump, and they differ", format, len(a), len(b))
		}
	}
	trace := must.Get(alloctrace.Read("dump", bytes.NewReader(dump)))(t)
	allocations := 0
	for _, row := range trace.Rows {
		if row.Action == alloctrace.Allocate {
			allocations++
		}
	}
	if allocations != 100 {
		t.Errorf("replay finds %d allocations, want 100", allocations)
	}
}
