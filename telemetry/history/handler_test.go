package history_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
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
	bad := []core.Event{{Op: core.OpReap, Ordinal: -1}}
	h := history.Handler(history.Source{Events: func() []core.Event { return bad }})
	for url, want := range map[string]int{"/?format=svg": 400, "/": 404, "/?format=jsonl": 404, "/?format=perfetto": 500} {
		if r, body := get(t, h, http.MethodGet, url); r.Code != want || len(body) == 0 {
			t.Errorf("%s: %d %s", url, r.Code, body)
		}
	}
	if r, _ := get(t, h, http.MethodDelete, "/"); r.Code != http.StatusMethodNotAllowed || r.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("DELETE: %d", r.Code)
	}
	if err := (history.Source{}).Write(io.Discard, history.JSONLines); !errors.Is(err, history.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	if err := (history.Source{}).Write(io.Discard, "svg"); err == nil {
		t.Error("svg was written")
	}
}
