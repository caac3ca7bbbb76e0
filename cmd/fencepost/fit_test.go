package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// What a running process has live counts, though its history has forgotten where it comes from.
func TestARunningProcessIsAskedWhatItNeeds(t *testing.T) {
	const mib = 1 << 20
	rt := must.Get(fencepost.Open(t.Context(), fencepost.Config{Device: fencepost.Sim, Guard: "off", History: 16}))(t)
	defer func() { must.Get(rt.Close(context.Background()))(t) }()
	handler := must.Get(fencepost.NewHandler(fencepost.HandlerConfig{Runtimes: []*fencepost.Runtime{rt}}))(t)
	server := httptest.NewServer(handler)
	defer server.Close()
	allocate := func(bytes uint64) core.BlockID {
		return must.Get(rt.Allocate(t.Context(), core.Request{Bytes: bytes, Tag: "test"}))(t).ID
	}
	weights := allocate(100 * mib)
	for range 20 {
		must.Get(rt.Deallocate(t.Context(), allocate(50*mib)))(t)
	}
	last := allocate(10 * mib)
	for _, c := range []struct {
		args []string
		code int
		peak uint64
		want string
	}{
		{nil, exitClean, 150 * mib, "needs about 150.0 MiB to 15"},
		{[]string{"--ordinal=0", "--memory=160MiB"}, exitClean, 150 * mib, "fits: needs about 150.0 MiB to 15"},
		{[]string{"--memory=140MiB"}, exitProblem, 150 * mib, "does not fit"},
		{[]string{"--resident=0"}, exitClean, 50 * mib, "needs about 50.0 MiB"},
	} {
		text, code := captured(t, append([]string{"fit", server.URL, "--json"}, c.args...)...)
		if code != c.code || !strings.Contains(text, c.want) || strings.Count(text, "more may be needed") != 1 ||
			!strings.Contains(text, fmt.Sprintf(`"peak_live_bytes":%d,`, c.peak)) {
			t.Errorf("%v: exit code %d, want %d, %q and a peak of %d:\n%s", c.args, code, c.code, c.want, c.peak, text)
		}
	}
	for _, at := range []string{server.URL + "/debug/gpumem/state", server.URL + "/nowhere"} {
		if text, code := captured(t, "fit", at); code == exitClean {
			t.Errorf("%s: exit code %d:\n%s", at, code, text)
		}
	}
	must.Get(rt.Deallocate(t.Context(), last))(t)
	must.Get(rt.Deallocate(t.Context(), weights))(t)

	lossy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != historyPath {
			handler.ServeHTTP(w, r)
			return
		}
		_, _ = io.WriteString(w, `{"op":"allocate","mono_ns":1,"stream":1,"generation":1,"requested":1048576,"bytes":1048576}`)
	}))
	defer lossy.Close()
	if text, code := captured(t, "fit", lossy.URL); code != exitBadInput || !strings.Contains(text, "it has lost the frees of some blocks") {
		t.Errorf("a history without a free: exit code %d:\n%s", code, text)
	}
}
