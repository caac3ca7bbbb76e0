package shown_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
)

func statusIn(t *testing.T, w *httptest.ResponseRecorder) fencepost.GuardStatus {
	t.Helper()
	var s fencepost.GuardStatus
	if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil || w.Code != http.StatusOK {
		t.Fatalf("answer %d, %v: %s", w.Code, err, w.Body)
	}
	return s
}

func TestTheGuardIsShownAndSwitchedOverHTTP(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{Guard: "ledger"})
	s := statusIn(t, e2e.Ask(rt, http.MethodGet, "", "", func(r *http.Request) { r.RemoteAddr, r.Host = "10.0.0.7:1", "elsewhere" }))
	if s.Setting != "ledger" || s.Policy != "report" || len(s.HuntTags) != 0 || s.Findings != 0 {
		t.Errorf("shown as %+v", s)
	}
	for _, c := range []struct{ method, contentType, body, setting, tags string }{
		{http.MethodPost, e2e.FormType, "mode=hunt", "hunt", ""},
		{http.MethodPut, e2e.FormType, "mode=sample:4096&hunt_tags=a,b&hunt_tags=c", "sample:4096", "a b c"},
		{http.MethodPost, e2e.FormType, "sample_bytes=8192", "sample:8192", "a b c"},
		{http.MethodPost, e2e.JSONType, `{"hunt_tags":["d"]}`, "sample:8192", "d"},
		{http.MethodPut, e2e.JSONType + "; charset=utf-8", `{"mode":"sample","sample_bytes":99}`, "sample:99", "d"},
		{http.MethodPost, e2e.FormType, "hunt_tags=", "sample:99", ""},
		{http.MethodPost, e2e.JSONType, `{"mode":"off","hunt_tags":[]}`, "off", ""},
	} {
		s := statusIn(t, e2e.Ask(rt, c.method, c.contentType, c.body, nil))
		if string(s.Setting) != c.setting || strings.Join(s.HuntTags, " ") != c.tags {
			t.Errorf("%s: %+v", c.body, s)
		}
	}
	if rt.Guard().Mode() != debugguard.Off || len(rt.Guard().HuntedTags()) != 0 || rt.Guard().SampleBytes() != 99 {
		t.Errorf("the guard itself is %v, %v", rt.Guard().Mode(), rt.Guard().HuntedTags())
	}
	if s := statusIn(t, e2e.Ask(rt, http.MethodPost, "", "", func(r *http.Request) { r.URL.RawQuery = "mode=ledger" })); s.Setting != "ledger" {
		t.Errorf("by query: %+v", s)
	}
}

func TestABadChangeIsRefusedWithTheWordsToUse(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{Guard: "ledger"})
	for _, c := range []struct{ contentType, body, want string }{
		{e2e.FormType, "mode=paranoid", "say off, ledger, sample"},
		{e2e.FormType, "mode=", "say off, ledger, sample"},
		{e2e.FormType, "", "names nothing to change"},
		{e2e.FormType, "speed=fast", "unknown: say mode, sample_bytes or hunt_tags"},
		{e2e.FormType, "mode=off&mode=hunt", "say it once"},
		{e2e.FormType, "sample_bytes=lots", "whole number"},
		{e2e.FormType, "sample_bytes=0", "say 1 or more"},
		{e2e.FormType, "sample_bytes=-1", "whole number"},
		{e2e.FormType, "mode=sample:5&sample_bytes=6", "say one of them"},
		{e2e.FormType, "hunt_tags=a,,b", "an empty tag"},
		{e2e.FormType, "hunt_tags=" + strings.Repeat("a,", 64) + "a", "at most 64"},
		{e2e.FormType, "%zz", "mode=hunt&hunt_tags"},
		{e2e.JSONType, "mode=hunt", `write it as {"mode"`},
		{e2e.JSONType, `{"mood":"hunt"}`, "unknown field"},
		{e2e.JSONType, `{}`, "names nothing to change"},
		{e2e.JSONType, `{"mode":"hunt"} {}`, "more than one object"},
		{e2e.JSONType, `{"hunt_tags":[""]}`, "an empty tag"},
		{e2e.JSONType, `{"sample_bytes":-1}`, "sample_bytes"},
		{e2e.FormType, "hunt_tags=a&mode=paranoid", "say off"},
	} {
		w := e2e.Ask(rt, http.MethodPost, c.contentType, c.body, nil)
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%q: %d %s, want 400 and %q", c.body, w.Code, w.Body, c.want)
		}
	}
	for _, kind := range []string{e2e.FormType, e2e.JSONType} {
		if w := e2e.Ask(rt, http.MethodPost, kind, `{"mode":"`+strings.Repeat("x", 70_000), nil); w.Code != http.StatusRequestEntityTooLarge {
			t.Errorf("a large body: %d %s", w.Code, w.Body)
		}
	}
	if w := e2e.Ask(rt, http.MethodDelete, "", "", nil); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") == "" {
		t.Errorf("DELETE: %d", w.Code)
	}
	if s := rt.GuardStatus(); s.Setting != "ledger" || len(s.HuntTags) != 0 {
		t.Errorf("a refused change left %+v", s)
	}
}

// elsewhere are requests that do not come from this machine, or not from a page
// of its own.
func elsewhere() map[string]func(*http.Request) {
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	peer := func(address string) func(*http.Request) { return func(r *http.Request) { r.RemoteAddr = address } }
	return map[string]func(*http.Request){
		"another machine":            peer("10.0.0.7:4000"),
		"another machine, IPv6":      peer("[2001:db8::1]:4000"),
		"all addresses":              peer("0.0.0.0:4000"),
		"a socket without a peer":    peer("@"),
		"no peer":                    peer(""),
		"a rebound name":             host("attacker.example"),
		"a rebound name with a port": host("attacker.example:9464"),
		"a name that begins right":   host("localhost.attacker.example"),
		"an address that is not it":  host("127.0.0.1.attacker.example:9464"),
		"no host":                    host(""),
		"another site's page":        header("Origin", "https://attacker.example"),
		"a page without an origin":   header("Origin", "null"),
		"a broken origin":            header("Origin", "http://%zz"),
		"a cross-site fetch":         header("Sec-Fetch-Site", "cross-site"),
		"a same-site fetch":          header("Sec-Fetch-Site", "same-site"),
		"an origin claimed to match": func(r *http.Request) {
			r.Header.Set("Origin", "https://attacker.example")
			r.Header.Set("Sec-Fetch-Site", "same-origin")
		},
		"another local server's page": header("Origin", "http://127.0.0.1:8080"),
		"a client of a local proxy":   header("X-Forwarded-For", "10.0.0.7"),
		"a client of another proxy":   header("Via", "1.1 gateway"),
	}
}

func host(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }

func TestTheGuardIsSwitchedFromThisMachineOnly(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{Guard: "ledger"})
	for name, change := range elsewhere() {
		for _, method := range []string{http.MethodPost, http.MethodPut} {
			if w := e2e.Ask(rt, method, e2e.FormType, "mode=off", change); w.Code != http.StatusForbidden || rt.GuardStatus().Setting != "ledger" {
				t.Errorf("%s of %s: %d %s", method, name, w.Code, w.Body)
			}
		}
	}
	for name, change := range map[string]func(*http.Request){
		"IPv6":             func(r *http.Request) { r.RemoteAddr, r.Host = "[::1]:4000", "[::1]:9464" },
		"IPv4 in IPv6":     func(r *http.Request) { r.RemoteAddr, r.Host = "[::ffff:127.0.0.1]:4000", "[::1]" },
		"another loopback": func(r *http.Request) { r.RemoteAddr, r.Host = "127.0.0.9:4000", "127.0.0.9" },
		"localhost":        host("LocalHost:9464"),
		"its own page":     func(r *http.Request) { r.Host = "localhost:9464"; r.Header.Set("Origin", "http://localhost:9464") },
	} {
		if w := e2e.Ask(rt, http.MethodPost, e2e.FormType, "mode=ledger", change); w.Code != http.StatusOK {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}

func TestSwitchingFromManyGoroutinesLosesNothing(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{Guard: "sample:4096", Incidents: t.TempDir()})
	var group sync.WaitGroup
	modes := []string{"mode=off", "mode=ledger", "mode=sample:512", "mode=hunt&hunt_tags=a", "hunt_tags="}
	for g := range 4 {
		group.Go(func() {
			for i := range 25 {
				if w := e2e.Ask(rt, http.MethodPost, e2e.FormType, modes[(g+i)%len(modes)], nil); w.Code != http.StatusOK {
					t.Errorf("%d %s", w.Code, w.Body)
				}
			}
		})
		group.Go(func() {
			for range 50 {
				b, err := rt.Allocate(t.Context(), core.Request{Bytes: 4096, Tag: "a"})
				if err == nil {
					_, err = rt.Deallocate(t.Context(), b.ID)
				}
				expect.Success(t, err)
			}
		})
	}
	group.Wait()
	e2e.Succeed(t, "drain", rt.Drain(t.Context()))
}

func TestTheStatusNamesEveryNumberOnce(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{Guard: "hunt"})
	e2e.Free(t, rt, e2e.Allocate(t, rt, 64, core.DefaultStream, "a"))
	s := rt.GuardStatus()
	if s.Numbers["guarded"] != 1 || s.Numbers["quarantine_blocks"] != 1 || s.Numbers["quarantine_bytes"] < 64 {
		t.Errorf("%+v", s)
	}
	exported := e2e.Matches(e2e.Gather(t, rt), `gpumem_guard_(?:events_total|state)\{device="0",(?:event|what)="(\w+)"\}`)
	for name := range s.Numbers {
		if !strings.HasPrefix(name, "quarantine_") && !slices.Contains(exported, name) {
			t.Errorf("%s is in the status and no metric", name)
		}
	}
	if len(exported)+2 != len(s.Numbers) {
		t.Errorf("%d numbers are exported, the status has %d", len(exported), len(s.Numbers))
	}
	for _, name := range exported {
		if !strings.Contains(e2e.Read(t, "docs/metrics.md"), "`"+name+"`") {
			t.Errorf("the page of metrics does not say what %s is", name)
		}
	}
}

// A number that the guard gains and nobody exports is noticed here: it needs a
// row in guardStats and a word in the page of metrics.
func TestEveryNumberOfTheGuardIsExported(t *testing.T) {
	fields := 0
	for field := range reflect.TypeFor[debugguard.GuardStats]().Fields() {
		if field.Type.Kind() == reflect.Uint64 {
			fields++
		}
	}
	numbers := e2e.Open(t, fencepost.Config{}).GuardStatus().Numbers
	for _, extra := range []string{"quarantine_bytes", "quarantine_blocks", "deferred", "hunted_tags", "given_up", "sentinels"} {
		if _, ok := numbers[extra]; !ok {
			t.Errorf("%s is missing", extra)
		}
		delete(numbers, extra)
	}
	if len(numbers) != fields {
		t.Errorf("the guard has %d numbers, %d are exported: %v", fields, len(numbers), numbers)
	}
}
