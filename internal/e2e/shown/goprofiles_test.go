package shown_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
)

func TestGoProfilesAreServedOnlyWhereTheyWereAskedFor(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{})
	paths := []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/goroutine?debug=2", "/debug/pprof/allocs"}
	for asked, want := range map[bool]int{false: http.StatusNotFound, true: http.StatusOK} {
		h := e2e.HandlerOf(t, fencepost.HandlerConfig{GoProfiles: asked}, rt)
		for _, path := range paths {
			if w := e2e.Request(h, http.MethodGet, path, ""); w.Code != want {
				t.Errorf("asked %t: %s: %d", asked, path, w.Code)
			}
		}
		if w := e2e.Request(h, http.MethodGet, "/debug/pprof/gpumem?debug=1", ""); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "gpumem") {
			t.Errorf("asked %t: the profile of the GPU's memory: %d", asked, w.Code)
		}
		if links := e2e.Request(h, http.MethodGet, "/debug/gpumem/state", "").Body.String(); strings.Contains(links, "Go profiles") != asked {
			t.Errorf("asked %t: the live view has links %.300s", asked, links)
		}
	}
	for _, path := range paths {
		if _, pattern := http.DefaultServeMux.Handler(httptest.NewRequest(http.MethodGet, path, nil)); pattern != "" {
			t.Errorf("%s is on the default mux, by %q", path, pattern)
		}
	}
}

func TestGoProfilesAreWhatGoToolPprofReads(t *testing.T) {
	h := e2e.HandlerOf(t, fencepost.HandlerConfig{GoProfiles: true}, e2e.Open(t, fencepost.Config{}))
	for path, sample := range map[string]string{
		"/debug/pprof/heap?gc=1": "inuse_space", "/debug/pprof/goroutine": "goroutine", "/debug/pprof/profile?seconds=1": "cpu",
	} {
		w := e2e.Request(h, http.MethodGet, path, "")
		p, err := profile.Parse(w.Body)
		if err != nil || w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/octet-stream" {
			t.Errorf("%s: %d %v: %v", path, w.Code, w.Header(), err)
			continue
		}
		if types := p.SampleType; !strings.Contains(types[len(types)-1].Type+types[0].Type, sample) {
			t.Errorf("%s: samples of %v", path, types)
		}
	}
	if w := e2e.Request(h, http.MethodGet, "/debug/pprof/trace?seconds=1", ""); w.Code != http.StatusOK || !strings.HasPrefix(w.Body.String(), "go 1.") {
		t.Errorf("the trace: %d %.20q", w.Code, w.Body)
	}
	list := e2e.Request(h, http.MethodGet, "/debug/pprof/", "").Body.String()
	for _, link := range []string{`"profile"`, `"trace"`, `"heap?debug=1"`, `"gpumem?debug=1"`} {
		if !strings.Contains(list, "href="+link) {
			t.Errorf("the list has no %s: %s", link, list)
		}
	}
}

func TestAWrongRequestForAProfileSaysWhatToSay(t *testing.T) {
	h := e2e.HandlerOf(t, fencepost.HandlerConfig{GoProfiles: true}, e2e.Open(t, fencepost.Config{}))
	for path, want := range map[string]struct {
		code int
		text string
	}{
		"/debug/pprof/profile?seconds=0":  {http.StatusBadRequest, "from 1 to 3600"},
		"/debug/pprof/trace?seconds=long": {http.StatusBadRequest, "from 1 to 3600"},
		"/debug/pprof/heap?debug=7":       {http.StatusBadRequest, "from 0 to 2"},
		"/debug/pprof/heap?seconds=3":     {http.StatusBadRequest, "-base"},
		"/debug/pprof/nothing":            {http.StatusNotFound, "lists them"},
		"/debug/pprof/cmdline":            {http.StatusNotFound, "lists them"},
	} {
		if w := e2e.Request(h, http.MethodGet, path, ""); w.Code != want.code || !strings.Contains(w.Body.String(), want.text) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/profile"} {
		if w := e2e.Request(h, http.MethodPost, path, ""); w.Code != http.StatusMethodNotAllowed {
			t.Errorf("POST %s: %d", path, w.Code)
		}
	}
}

// A trace outlives the time that a server gives an answer, ends when its
// client goes, and only one is made at a time.
func TestATraceEndsWithItsClientAndOutlivesTheServersTime(t *testing.T) {
	server := httptest.NewUnstartedServer(e2e.HandlerOf(t, fencepost.HandlerConfig{GoProfiles: true}, e2e.Open(t, fencepost.Config{})))
	server.Config.WriteTimeout = 500 * time.Millisecond
	server.Start()
	defer server.Close()
	get := func(ctx context.Context, query string) (*http.Response, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/debug/pprof/trace"+query, nil)
		e2e.Succeed(t, "the request", err)
		return server.Client().Do(req)
	}
	ctx, leave := context.WithCancel(t.Context())
	gone, err := get(ctx, "?seconds=3600") // its first bytes come long before
	e2e.Succeed(t, "the first trace", err)
	second, err := get(t.Context(), "")
	e2e.Succeed(t, "the second request", err)
	body, _ := io.ReadAll(second.Body)
	_ = second.Body.Close()
	if second.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(body), "one at a time") {
		t.Errorf("beside another: %d %s", second.StatusCode, body)
	}
	leave()
	_ = gone.Body.Close()
	for { // the handler of the first hears of it soon
		third, err := get(t.Context(), "?seconds=1")
		e2e.Succeed(t, "the third request", err)
		body, err := io.ReadAll(third.Body)
		_ = third.Body.Close()
		if third.StatusCode == http.StatusServiceUnavailable {
			continue
		}
		if err != nil || third.StatusCode != http.StatusOK || len(body) == 0 {
			t.Errorf("behind another: %d, %d bytes, %v", third.StatusCode, len(body), err)
		}
		return
	}
}
