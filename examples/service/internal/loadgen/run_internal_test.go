package loadgen

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// A service that hangs does not make requests pile up here without bound.
func TestRequestsBeyondTheBoundAreSkipped(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		<-release
		http.Error(w, "", http.StatusServiceUnavailable)
	}))
	defer server.Close()
	r := newRun(Config{URL: server.URL, Rate: 200, For: 200 * time.Millisecond, InFlight: 3, Rows: 10, Seed: 1, Timeout: time.Minute})
	answer := sync.OnceFunc(func() { close(release) })
	defer answer()
	go func() {
		for r.due() < 40 && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
		answer()
	}()
	if report := r.do(t.Context()); report.Sent != 3 || report.Skipped != 37 || report.Clean() {
		t.Errorf("%+v", report)
	}
}

// due is how many requests were due so far.
func (r *run) due() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.report.Sent + r.report.Skipped
}
