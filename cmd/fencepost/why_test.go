package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A running process is asked where it serves its history, or where the URL says.
func TestARunningProcessIsAskedWhy(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != historyPath && r.URL.RequestURI() != "/second?device=1" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(`{"time":"2026-01-01T00:00:00Z","mono_ns":1,"op":"device","device":0,"stream":1,"duration_ns":1000000,"launch":"merge","launch_id":7,` +
			`"trace_id":"0000000000000000000000000000000a","span_id":"00000000000000a1","timed":{"weight":1}}` + "\n"))
	}))
	defer server.Close()
	for _, c := range []struct {
		at   string
		code int
		want string
	}{
		{server.URL, exitClean, `launch 7 "merge" ran`},
		{server.URL + "/", exitClean, `launch 7 "merge" ran`},
		{server.URL + "/second?device=1", exitClean, `launch 7 "merge" ran`},
		{server.URL + "/elsewhere", exitProblem, "404 Not Found"},
	} {
		if text, code := captured(t, "why", c.at, "0000000000000000000000000000000a"); code != c.code || !strings.Contains(text, c.want) {
			t.Errorf("%s: exit code %d, want %d and %q:\n%s", c.at, code, c.code, c.want, text)
		}
	}
}
