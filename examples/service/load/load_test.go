package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/examples/service/internal/loadgen"
)

func TestWrongResultsEndWithOne(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }))
	defer server.Close()
	args := []string{"-url=" + server.URL, "-rate=100", "-for=100ms", "-rows=10", "-seed=7"}
	var text bytes.Buffer
	if code := run(t.Context(), args, &text, io.Discard); code != exitProblem || !strings.Contains(text.String(), "seed 7") {
		t.Errorf("%d\n%s", code, &text)
	}
	var report loadgen.Report
	text.Reset()
	code := run(t.Context(), append(args, "-json"), &text, io.Discard)
	if err := json.Unmarshal(text.Bytes(), &report); err != nil || code != exitProblem || report.Wrong == 0 || report.Seed != 7 {
		t.Errorf("%d %v\n%s", code, err, &text)
	}
}

func TestBadFlagsAreRefused(t *testing.T) {
	for flag, want := range map[string]string{
		"-no-such":               "not defined",
		"extra":                  "flags only",
		"-rate=0":                "rate",
		"-url=http://192.0.2.77": "not this machine",
	} {
		var stderr bytes.Buffer
		if code := run(t.Context(), []string{flag}, io.Discard, &stderr); code != exitUsage || !strings.Contains(stderr.String(), want) {
			t.Errorf("%s: %d\n%s", flag, code, &stderr)
		}
	}
	if code := run(t.Context(), []string{"-h"}, io.Discard, io.Discard); code != exitClean {
		t.Errorf("-h: %d", code)
	}
}
