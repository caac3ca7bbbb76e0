package shown_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
)

type listedFile struct {
	Index      int
	Time       time.Time
	Form, What string
	Bytes      int64
}

func filesIn(t *testing.T, w *httptest.ResponseRecorder) []listedFile {
	t.Helper()
	var answer struct{ Files []listedFile }
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != http.StatusOK || answer.Files == nil {
		t.Fatalf("%d %v %s", w.Code, err, w.Body)
	}
	return answer.Files
}

func filesOf(t *testing.T, h http.Handler) []listedFile {
	t.Helper()
	return filesIn(t, e2e.Request(h, http.MethodGet, "/debug/gpumem/incidents", ""))
}

// evilTag is markup, ends strings, turns the writing direction, and is long.
var evilTag = core.Tag("<script>alert(1)</script>\"'\r\nX-Evil: 1\x00\u202e" + strings.Repeat("long", 40))

// withIncident is a runtime that has found a bug of a tag, and its handler.
func withIncident(t *testing.T, tag core.Tag, cfg fencepost.Config) (*fencepost.Runtime, http.Handler) {
	t.Helper()
	cfg.Guard, cfg.Incidents = "ledger", t.TempDir()
	rt := e2e.OpenDirty(t, cfg)
	h := e2e.HandlerOf(t, fencepost.HandlerConfig{Incidents: true}, rt)
	b := e2e.Allocate(t, rt, 4096, core.DefaultStream, tag)
	e2e.Free(t, rt, b)
	if _, err := rt.Deallocate(t.Context(), b.ID); err == nil {
		t.Fatal("it was freed twice")
	}
	for end := time.Now().Add(time.Minute); len(filesOf(t, h)) < 4 || len(rt.Incidents().Files()) == 0; time.Sleep(5 * time.Millisecond) { // the finding and its dump
		if time.Now().After(end) {
			t.Fatalf("%+v", filesOf(t, h))
		}
	}
	return rt, h
}

func TestIncidentsAreThereOnlyWhereTheyAreSwitchedOn(t *testing.T) {
	without := e2e.Open(t, fencepost.Config{})
	with := e2e.Open(t, fencepost.Config{Ordinal: 1, Incidents: t.TempDir()})
	for name, h := range map[string]http.Handler{
		"off":         e2e.HandlerOf(t, fencepost.HandlerConfig{}, with),
		"no folder":   e2e.HandlerOf(t, fencepost.HandlerConfig{Incidents: true}, without),
		"all but it ": e2e.HandlerOf(t, fencepost.HandlerConfig{SwitchGuard: true, GoProfiles: true}, with),
	} {
		for _, path := range []string{"/debug/gpumem/incidents", "/debug/gpumem/incidents/1", "/debug/gpumem/dump"} {
			for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
				if w := e2e.Request(h, method, path, ""); w.Code != http.StatusNotFound {
					t.Errorf("%s: %s %s: %d %s", name, method, path, w.Code, w.Body)
				}
			}
		}
		if state := e2e.Request(h, http.MethodGet, "/debug/gpumem/state", "").Body.String(); !strings.Contains(state, `"files":false`) {
			t.Errorf("%s: the page would show them", name)
		}
	}
	h := e2e.HandlerOf(t, fencepost.HandlerConfig{Incidents: true}, with)
	if state := e2e.Request(h, http.MethodGet, "/debug/gpumem/state", "").Body.String(); !strings.Contains(state, `"files":true`) || len(filesOf(t, h)) != 0 {
		t.Error("switched on, the page does not show them")
	}
}

func TestAnIncidentIsFetchedByItsNumberAsADownload(t *testing.T) {
	rt, h := withIncident(t, evilTag, fencepost.Config{})
	files := filesOf(t, h)
	var names []string
	for _, f := range files {
		path := "/debug/gpumem/incidents/" + strconv.Itoa(f.Index)
		w := e2e.Request(h, http.MethodGet, path, "")
		head := w.Header()
		if w.Code != http.StatusOK || w.Body.Len() != int(f.Bytes) || head.Get("Content-Length") != strconv.FormatInt(f.Bytes, 10) {
			t.Errorf("%+v: %d, %d bytes", f, w.Code, w.Body.Len())
		}
		for name, want := range map[string]string{"Content-Type": "application/octet-stream", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
			"Cross-Origin-Resource-Policy": "same-origin", "Content-Security-Policy": "default-src 'none'; sandbox"} {
			if head.Get(name) != want {
				t.Errorf("%+v: %s is %q", f, name, head.Get(name))
			}
		}
		names = append(names, head.Get("Content-Disposition"))
		if f.Form == "incident" && (!strings.Contains(w.Body.String(), "double-free") || f.What != "double-free" || time.Since(f.Time).Abs() > time.Hour) {
			t.Errorf("%+v: %s", f, w.Body)
		}
		if f.Form != "incident" && f.What != "finding" {
			t.Errorf("%+v", f)
		}
		if w := e2e.Request(h, http.MethodHead, path, ""); w.Code != http.StatusOK || w.Body.Len() != 0 {
			t.Errorf("HEAD: %d, %d bytes", w.Code, w.Body.Len())
		}
	}
	slices.Sort(names)
	if want := []string{`attachment; filename="fencepost-dump.jsonl.gz"`, `attachment; filename="fencepost-dump.pickle"`,
		`attachment; filename="fencepost-dump.trace.json.gz"`, `attachment; filename="fencepost-incident.json"`}; !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
	before := deviceCalls(rt)
	filesOf(t, h)
	e2e.Request(h, http.MethodGet, "/debug/gpumem/incidents/1", "")
	if after := deviceCalls(rt); after != before {
		t.Errorf("%d device calls", after-before)
	}
}

func TestNoPathLeadsOutOfTheFolder(t *testing.T) {
	rt, h := withIncident(t, "a", fencepost.Config{})
	folder := filepath.Dir(rt.Incidents().Files()[0])
	name := filepath.Base(rt.Incidents().Files()[0])
	secret := filepath.Join(t.TempDir(), name)
	e2e.Succeed(t, "write", os.WriteFile(secret, []byte("secret"), 0o600))
	later := "20991122T091633.501856958Z-000099-double-free.json"
	if err := os.Symlink(secret, filepath.Join(folder, later)); err != nil {
		t.Skip(err)
	}
	files := filesOf(t, h)
	for _, f := range files {
		if f.Time.Year() == 2099 {
			t.Errorf("a link is listed: %+v", f)
		}
	}
	last := 0
	for _, f := range files {
		last = max(last, f.Index)
	}
	for _, index := range []string{"0", "-1", fmt.Sprint(last + 1), "99999999999999999999", "01", "+1", "1e0", "0x1", "1.json", " 1", "1%00", "%31%2f", "..", "..%2f..%2fetc%2fpasswd",
		"%2e%2e%2f" + name, name, later, "%2fetc%2fpasswd", "1;2", "¹", "१"} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			w := e2e.Request(h, method, "/debug/gpumem/incidents/"+strings.ReplaceAll(index, " ", "%20"), "")
			redirected := w.Code == http.StatusTemporaryRedirect || w.Code == http.StatusMovedPermanently // a path that was cleaned
			if w.Code != http.StatusNotFound && !redirected || strings.Contains(w.Body.String(), "secret") {
				t.Errorf("%s %q: %d %s", method, index, w.Code, w.Body)
			}
		}
	}
	// A file that vanishes after it was listed.
	e2e.Succeed(t, "remove", os.Remove(filepath.Join(folder, name)))
	for _, f := range files {
		if w := e2e.Request(h, http.MethodGet, "/debug/gpumem/incidents/"+strconv.Itoa(f.Index), ""); f.Form == "incident" && w.Code != http.StatusNotFound {
			t.Errorf("a file that is gone: %d %s", w.Code, w.Body)
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
		if w := e2e.Request(h, method, "/debug/gpumem/incidents/1", ""); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") == "" {
			t.Errorf("%s: %d", method, w.Code)
		}
	}
}

func TestADumpIsMadeForThisMachineOnceAMinute(t *testing.T) {
	rt, h := withIncident(t, "a", fencepost.Config{})
	before := filesOf(t, h)
	for name, change := range elsewhere() {
		req := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:9464/debug/gpumem/dump", nil)
		req.RemoteAddr = "127.0.0.1:40000"
		change(req)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		if w.Code != http.StatusForbidden {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete} {
		if w := e2e.Request(h, method, "/debug/gpumem/dump", ""); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != http.MethodPost {
			t.Errorf("%s: %d %s", method, w.Code, w.Body)
		}
	}
	if after := filesOf(t, h); len(after) != len(before) {
		t.Fatalf("a refused request made files: %+v", after)
	}
	made := filesIn(t, e2e.Request(h, http.MethodPost, "/debug/gpumem/dump", ""))
	if len(made) != 3 {
		t.Fatalf("%+v", made)
	}
	for _, f := range made {
		w := e2e.Request(h, http.MethodGet, "/debug/gpumem/incidents/"+strconv.Itoa(f.Index), "")
		if f.What != "request" || f.Form == "incident" || w.Code != http.StatusOK || w.Body.Len() != int(f.Bytes) {
			t.Errorf("%+v: %d", f, w.Code)
		}
	}
	for range 3 {
		w := e2e.Request(h, http.MethodPost, "/debug/gpumem/dump", "")
		wait, err := strconv.Atoi(w.Header().Get("Retry-After"))
		if w.Code != http.StatusTooManyRequests || err != nil || wait < 1 || wait > 60 {
			t.Errorf("again: %d, wait %d, %v", w.Code, wait, err)
		}
	}
	if after := filesOf(t, h); len(after) != len(before)+3 {
		t.Errorf("%+v", after)
	}
	_, _ = rt.Close(t.Context())
	h = e2e.HandlerOf(t, fencepost.HandlerConfig{Incidents: true}, rt)
	if w := e2e.Request(h, http.MethodPost, "/debug/gpumem/dump", ""); w.Code != http.StatusServiceUnavailable {
		t.Errorf("of a runtime that is closed: %d %s", w.Code, w.Body)
	}
}

func TestIncidentsOfSeveralDevicesAreToldApart(t *testing.T) {
	first := e2e.Open(t, fencepost.Config{Ordinal: 1, Incidents: t.TempDir()})
	second := e2e.Open(t, fencepost.Config{Ordinal: 2, Incidents: t.TempDir()})
	h := e2e.HandlerOf(t, fencepost.HandlerConfig{Incidents: true}, first, second)
	made := filesIn(t, e2e.Request(h, http.MethodPost, "/debug/gpumem/dump?device=2", ""))
	path := "/debug/gpumem/incidents/" + strconv.Itoa(made[0].Index)
	for device, want := range map[string]int{"?device=2": http.StatusOK, "?device=1": http.StatusNotFound, "": http.StatusBadRequest} {
		if w := e2e.Request(h, http.MethodGet, path+device, ""); w.Code != want {
			t.Errorf("%s: %d %s", device, w.Code, w.Body)
		}
	}
	if files := filesIn(t, e2e.Request(h, http.MethodGet, "/debug/gpumem/incidents?device=1", "")); len(files) != 0 {
		t.Errorf("%+v", files)
	}
}
