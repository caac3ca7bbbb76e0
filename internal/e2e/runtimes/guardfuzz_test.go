package runtimes_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// Whatever a request says: it is answered, changes nothing unless it is taken,
// and is not taken under a name that is not this machine's.
func FuzzTheGuardIsSwitchedByGoodRequestsOnly(f *testing.F) {
	for _, seed := range [][3]string{
		{"127.0.0.1:1", e2e.FormType, "mode=hunt"}, {"localhost", e2e.JSONType, `{"mode":"sample:7","hunt_tags":["a"]}`}, {"[::1]:9464", e2e.FormType, "hunt_tags=a,b&sample_bytes=5"},
		{"attacker.example", e2e.FormType, "mode=off"}, {"127.0.0.1.example", e2e.FormType, "mode=off"}, {"[", "", "%"}, {"localhost:x", e2e.JSONType, `{"mode":null}`},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	rt := must.Get(fencepost.Open(f.Context(), fencepost.Config{Guard: "ledger"}))(f)
	f.Cleanup(func() { _, _ = rt.Close(context.Background()) })
	f.Fuzz(func(t *testing.T, host, contentType, body string) {
		before := rt.GuardStatus()
		w := e2e.Ask(rt, http.MethodPost, contentType, body, func(r *http.Request) { r.Host = host })
		after := rt.GuardStatus()
		switch w.Code {
		case http.StatusOK:
			name := strings.ToLower(host)
			if !strings.HasPrefix(name, "localhost") && !strings.Contains(name, "127.") && !strings.Contains(name, "::") && !strings.Contains(name, "0:1") {
				t.Errorf("taken under the name %q", host)
			}
		case http.StatusBadRequest, http.StatusForbidden, http.StatusRequestEntityTooLarge:
			if before.Setting != after.Setting || strings.Join(before.HuntTags, ",") != strings.Join(after.HuntTags, ",") {
				t.Errorf("refused with %d, and changed from %v to %v", w.Code, before, after)
			}
		default:
			t.Errorf("answered with %d: %s", w.Code, w.Body)
		}
	})
}
