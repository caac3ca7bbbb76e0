package profile_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry/profile"
)

func get(t *testing.T, h http.Handler, method, url string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, url, nil))
	return w
}

func fake(t *testing.T, sizes ...uint64) (*coretest.Fake, []core.Block) {
	t.Helper()
	f := coretest.NewFake(0)
	f.ReleaseAtFree()
	var blocks []core.Block
	for _, bytes := range sizes {
		b := must.Get(f.Allocate(t.Context(), core.Request{Bytes: bytes, Tag: "tables"}))(t)
		blocks = append(blocks, b)
	}
	return f, blocks
}

func TestTheHandlerServesWhatPprofReads(t *testing.T) {
	f, _ := fake(t, 100, 200)
	r := get(t, profile.Handler(profile.Source{Resource: f}), http.MethodGet, "/debug/pprof/gpumem")
	if r.Code != http.StatusOK || r.Header().Get("Content-Type") != "application/octet-stream" || r.Header().Get("X-Content-Type-Options") != "nosniff" ||
		r.Header().Get("Content-Disposition") != `attachment; filename="gpumem"` {
		t.Errorf("%d with %v", r.Code, r.Header())
	}
	p, err := pprof.Parse(r.Body)
	if err != nil || inUse(p, "", "").Bytes != 300 {
		t.Errorf("%v, %v", p, err)
	}
}

func TestDebugGivesText(t *testing.T) {
	f, _ := fake(t, 100, 200)
	r := get(t, profile.Handler(profile.Source{Resource: f, Allocations: profile.NewAllocations(f)}), http.MethodGet, "/debug/pprof/gpumem?debug=1")
	want := "gpumem profile: 300 bytes in 2 blocks in use, 300 bytes in 2 blocks ever allocated\n\n" +
		"300 bytes in 2 [0 bytes in 0] @ device=0 state=live stream=default tag=tables\n#\tunsampled\n\n" +
		"0 bytes in 0 [300 bytes in 2] @ device=0\n#\tunsampled\n"
	if got := r.Body.String(); got != want || r.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("%v\n%s", r.Header(), got)
	}
}

// holding has a pool that holds what is live.
type holding struct{ *coretest.Fake }

func (h holding) Stats() core.Stats {
	st := h.Fake.Stats()
	st.Reserved = st.Live.Bytes
	return st
}

func TestSecondsGiveWhatChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, blocks := fake(t, 100, 200)
		h := profile.Handler(profile.Source{Resource: holding{f}, Allocations: profile.NewAllocations(f)})
		go func() {
			time.Sleep(time.Second)
			_, _ = f.Deallocate(t.Context(), blocks[0].ID)
			_, _ = f.Allocate(t.Context(), core.Request{Bytes: 7, Tag: "keys"})
		}()
		r := get(t, h, http.MethodGet, "/debug/pprof/gpumem?seconds=2")
		p := must.Get(pprof.Parse(r.Body))(t)
		if p.DurationNanos != int64(2*time.Second) || p.DefaultSampleType != "inuse_space" {
			t.Errorf("duration %d, default %q", p.DurationNanos, p.DefaultSampleType)
		}
		if len(p.Comments) != 1 || !strings.HasPrefix(p.Comments[0], "device 0: the pool holds 207 bytes") {
			t.Errorf("of the pool at the end it says %q", p.Comments)
		}
		bytes := map[string]int64{}
		var allocated int64
		for _, s := range p.Sample {
			if tag := s.Label["tag"]; tag != nil {
				bytes[tag[0]] += s.Value[3]
			}
			allocated += s.Value[1]
		}
		if bytes["tables"] != -100 || bytes["keys"] != 7 || allocated != 7 {
			t.Errorf("in use %v, allocated %d", bytes, allocated)
		}
	})
}

func TestBadRequestsAreRefused(t *testing.T) {
	f, _ := fake(t)
	h := profile.Handler(profile.Source{Resource: f})
	for url, want := range map[string]int{
		"/?seconds=0": 400, "/?seconds=-1": 400, "/?seconds=x": 400, "/?seconds=99999999": 400, "/?seconds=1&debug=1": 400, "/": 200,
	} {
		if r := get(t, h, http.MethodGet, url); r.Code != want {
			t.Errorf("%s: %d", url, r.Code)
		}
	}
	r := get(t, h, http.MethodPost, "/")
	if r.Code != http.StatusMethodNotAllowed || r.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %d", r.Code)
	}
	if r := get(t, h, http.MethodHead, "/"); r.Code != http.StatusOK || r.Body.Len() != 0 {
		t.Errorf("HEAD: %d", r.Code)
	}
}

func TestADeltaThatTheServerWouldCutOffIsRefused(t *testing.T) {
	f, _ := fake(t)
	server := httptest.NewUnstartedServer(profile.Handler(profile.Source{Resource: f}))
	server.Config.WriteTimeout = 2 * time.Second
	server.Start()
	defer server.Close()
	request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/?seconds=2", nil))(t)
	r, err := server.Client().Do(request)
	must.Do(t, err)
	defer r.Body.Close()
	text := must.Get(io.ReadAll(r.Body))(t)
	if r.StatusCode != http.StatusBadRequest || !strings.Contains(string(text), "WriteTimeout") {
		t.Errorf("%s: %s", r.Status, text)
	}
}

func TestADeltaEndsWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := fake(t, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		w, began := httptest.NewRecorder(), time.Now()
		profile.Handler(profile.Source{Resource: f}).ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/?seconds=3600", nil))
		if took := time.Since(began); took != time.Second || w.Code == http.StatusOK {
			t.Errorf("it ended after %v with %d", took, w.Code)
		}
	})
}
