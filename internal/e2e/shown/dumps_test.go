package shown_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry/dump"
)

// dumped waits for the files of a dump.
func dumped(t *testing.T, dir, trigger string) []string {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		files := must.Get(filepath.Glob(filepath.Join(dir, "2*-dump-"+trigger+".*")))(t)
		if len(files) >= 3 {
			return files
		}
		if time.Now().After(deadline) {
			t.Fatalf("no dump upon %s, only %q", trigger, files)
		}
	}
}

// What happened before a finding is on the disk, and a storm of findings is one
// dump.
func TestFindingsAreDumpedOnce(t *testing.T) {
	dir := t.TempDir()
	rt := e2e.OpenDirty(t, fencepost.Config{Guard: "hunt", Incidents: dir})
	for range 20 {
		b := e2e.Allocate(t, rt, 64, core.DefaultStream, "twice")
		e2e.Free(t, rt, b)
		_, _ = rt.Deallocate(t.Context(), b.ID)
	}
	dumped(t, dir, "finding")
	_, err := rt.Close(t.Context())
	e2e.Succeed(t, "close", err)
	if files := dumped(t, dir, "finding"); len(files) != 3 {
		t.Errorf("20 findings made %q", files)
	}
	text := e2e.Gather(t, rt)
	for _, want := range []string{`gpumem_dumps_total{device="0",outcome="written",trigger="finding"} 1`, `gpumem_dumps_total{device="0",outcome="limited",trigger="finding"} 19`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
}

func TestALostDeviceIsDumpedWhateverWasBefore(t *testing.T) {
	dir := t.TempDir()
	rt := e2e.OpenDirty(t, fencepost.Config{Guard: "hunt", Incidents: dir})
	b := e2e.Allocate(t, rt, 64, core.DefaultStream, "twice")
	e2e.Free(t, rt, b)
	_, _ = rt.Deallocate(t.Context(), b.ID)
	dumped(t, dir, "finding")
	e2e.Simulated(rt).LoseContext(driver.IllegalAddress)
	_, _ = rt.Allocate(t.Context(), core.Request{Bytes: 64})
	dumped(t, dir, "sticky-error")
}

func TestAStormOfRefusalsIsDumped(t *testing.T) {
	dir := t.TempDir()
	rt := e2e.Open(t, fencepost.Config{Budget: 1 << 20, Guard: "off", Incidents: dir})
	held := e2e.Allocate(t, rt, 1<<19, core.DefaultStream, "held")
	for range 10 {
		_, _ = rt.Allocate(t.Context(), core.Request{Bytes: 1 << 20, Tag: "late"})
	}
	e2e.Free(t, rt, held)
	dumped(t, dir, "refusals")
}

func TestADumpUponRequestIsTheHistory(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{Incidents: t.TempDir()})
	e2e.Free(t, rt, e2e.Allocate(t, rt, 4096, core.DefaultStream, "asked"))
	paths, err := rt.Dump(t.Context())
	e2e.Succeed(t, "dump", err)
	if len(paths) != 3 {
		t.Errorf("the files are %q", paths)
	}
	for _, path := range paths {
		if found, err := filepath.Glob(path); err != nil || len(found) != 1 {
			t.Errorf("%s: %v %v", path, found, err)
		}
	}
}

func TestADumpNeedsAFolder(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{})
	_, err := rt.Dump(t.Context())
	if e, ok := errors.AsType[*core.InvalidRequestError](err); !ok || !strings.Contains(e.Reason, "FENCEPOST_INCIDENTS") {
		t.Errorf("got %v", err)
	}
	_, err = fencepost.Open(t.Context(), fencepost.Config{Incidents: t.TempDir(), DumpConfig: dump.Config{MaxFiles: 1}})
	if e, ok := errors.AsType[*core.InvalidRequestError](err); !ok || e.Field != "DumpConfig" {
		t.Errorf("got %v", err)
	}
}

func TestTheHistoryIsServedInEachFormat(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{})
	e2e.Free(t, rt, e2e.Allocate(t, rt, 4096, core.DefaultStream, "served"))
	get := func(query string) (int, string) {
		w := httptest.NewRecorder()
		rt.HistoryHandler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/debug/gpumem/history"+query, nil))
		return w.Code, w.Body.String()
	}
	if code, body := get(""); code != 200 || !json.Valid([]byte(body[:strings.IndexByte(body, '\n')])) || !strings.Contains(body, "served") {
		t.Errorf("%d %s", code, body)
	}
	if code, body := get("?format=perfetto"); code != 200 || !json.Valid([]byte(body)) || !strings.Contains(body, "served") {
		t.Errorf("%d %s", code, body)
	}
	if code, body := get("?format=pytorch"); code != 200 || !strings.Contains(body, "served") {
		t.Errorf("%d %s", code, body)
	}
	if code, _ := get("?format=pdf"); code != 400 {
		t.Errorf("%d", code)
	}
}
