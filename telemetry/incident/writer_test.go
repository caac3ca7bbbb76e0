package incident_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry/incident"
)

func TestEachFindingIsAFileNamedByTimeNumberAndKind(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "as", "needed")
	w := writer(t, incident.Config{Folder: dir, Around: known(func(f core.Finding) incident.Surroundings {
		return incident.Surroundings{Stack: "stack around " + string(f.Victim.Tag)}
	})})
	w.Report(named("a"))
	w.Report(core.Finding{Kind: "Odd/../kind", Source: "x"})
	must.Do(t, w.Close(t.Context()))
	names := list(t, dir)
	if len(names) != 2 || !regexp.MustCompile(`^20261122T034500\.123456789Z-\d{6}-oob-write\.json$`).MatchString(names[slices.IndexFunc(names, func(n string) bool { return strings.Contains(n, "oob") })]) {
		t.Fatalf("the files are %q", names)
	}
	for _, in := range readAll(t, dir) {
		if in.Schema != incident.Schema || in.Number == 0 || in.Process.PID != os.Getpid() || in.Process.Go == "" || in.Process.Fencepost == "" || !strings.HasPrefix(in.Stack, "stack around ") {
			t.Errorf("an incident without its surroundings: %+v", in)
		}
		if in.Finding.Time.IsZero() {
			t.Errorf("%s has no time", in.Finding.Kind)
		}
	}
	if !slices.ContainsFunc(names, func(n string) bool { return strings.HasSuffix(n, "-odd-kind.json") }) {
		t.Errorf("the odd kind is not in a name: %q", names)
	}
	if files := w.Files(); len(files) != 2 || filepath.Dir(files[0]) != dir {
		t.Errorf("the writer names %q", files)
	}
	balanced(t, w.Stats())
}

func TestTheFolderKeepsItsBoundsAndOnlyOurFilesGo(t *testing.T) {
	dir := t.TempDir()
	foreign := []string{"notes.txt", "20260101T000000.000000000Z-000001-oob-write.json.bak", "20260101T000000Z-1-x.json", ".20260101T000000.000000000Z-000001-leak.json7"}
	for _, name := range foreign {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte("keep me"), 0o600))
	}
	must.Do(t, os.Mkdir(filepath.Join(dir, "20260101T000000.000000000Z-000002-oob-write.json"), 0o700))
	w := writer(t, incident.Config{Folder: dir, MaxFiles: 5})
	for i := range 20 {
		f := named(core.Tag(fmt.Sprint("tag", i)))
		f.Time = f.Time.Add(time.Duration(i) * time.Second)
		w.Report(f)
	}
	must.Do(t, w.Close(t.Context()))
	var ours []string
	for _, name := range list(t, dir) {
		if strings.HasPrefix(name, "20261122") {
			ours = append(ours, name)
		}
	}
	if len(ours) != 5 || !strings.Contains(ours[0], "T034515") {
		t.Errorf("%d files are left, want the newest 5: %q", len(ours), ours)
	}
	if got := list(t, dir); len(got) != 5+len(foreign)+1 {
		t.Errorf("files of others went: %q", got)
	}
	if s := w.Stats(); s.Written != 20 || s.Removed != 15 {
		t.Errorf("%+v", s)
	}
}

func TestTheFolderKeepsItsBytes(t *testing.T) {
	dir := t.TempDir()
	const limit = 64 << 10
	w := writer(t, incident.Config{Folder: dir, MaxBytes: limit})
	for i := range 60 {
		f := named(core.Tag(fmt.Sprint("tag", i)))
		f.Text = strings.Repeat("long ", 800)
		w.Report(f)
	}
	must.Do(t, w.Close(t.Context()))
	total := int64(0)
	for _, name := range list(t, dir) {
		info := must.Get(os.Stat(filepath.Join(dir, name)))(t)
		total += info.Size()
	}
	if s := w.Stats(); total > limit || total < limit/2 || s.Removed == 0 || s.Written != 60 {
		t.Errorf("%d bytes of at most %d, %+v", total, limit, s)
	}
}

// A draft of a process that died is removed with the oldest, not at once: it
// may be another process's that is at work.
func TestAnAbandonedDraftIsTheFirstToGo(t *testing.T) {
	dir := t.TempDir()
	draft := filepath.Join(dir, ".20260101T000000.000000000Z-000001-leak.json4711")
	must.Do(t, os.WriteFile(draft, []byte("half"), 0o600))
	old := time.Now().Add(-2 * time.Hour)
	must.Do(t, os.Chtimes(draft, old, old))
	w := writer(t, incident.Config{Folder: dir, MaxFiles: 2})
	for _, tag := range []core.Tag{"a", "b"} {
		w.Report(named(tag))
	}
	must.Do(t, w.Close(t.Context()))
	if names := list(t, dir); len(names) != 2 || slices.ContainsFunc(names, isDraft) {
		t.Errorf("left: %q", names)
	}
}

func TestAHistoryThatIsTooLongLosesItsOldest(t *testing.T) {
	dir := t.TempDir()
	w := writer(t, incident.Config{Folder: dir, MaxBytes: 64 << 10, Around: known(func(core.Finding) incident.Surroundings {
		s := incident.Surroundings{Stack: "s"}
		for i := range 1000 {
			s.History = append(s.History, incident.FromEvent(oplog.Event{Op: oplog.OpAllocate, Bytes: uint64(i), Tag: "some.tag"}))
		}
		return s
	})})
	w.Report(named("a"))
	must.Do(t, w.Close(t.Context()))
	in := readAll(t, dir)[0]
	if n := len(in.History); n == 0 || n == 1000 || in.History[n-1].Bytes != 999 {
		t.Errorf("%d records are left", n)
	}
}

func TestWhatIsTooLargeWithoutItsHistoryIsNotWritten(t *testing.T) {
	w := writer(t, incident.Config{Folder: t.TempDir(), MaxBytes: 64 << 10})
	f := named("a")
	for range 100 {
		f.Suspects = append(f.Suspects, core.UseRecord{Launch: strings.Repeat("x", 4000)})
	}
	w.Report(f)
	if err := w.Close(t.Context()); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("Close says %v", err)
	}
	if s := w.Stats(); s.Failed != 1 {
		t.Errorf("%+v", s)
	}
}

func TestBadWritersAreRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must.Do(t, os.WriteFile(file, nil, 0o600))
	for name, cfg := range map[string]incident.Config{
		"no folder":            {},
		"a file":               {Folder: file},
		"a folder in a file":   {Folder: filepath.Join(file, "x")},
		"fewer than no files":  {Folder: t.TempDir(), MaxFiles: -1},
		"no room for one":      {Folder: t.TempDir(), MaxBytes: 100},
		"a negative queue":     {Folder: t.TempDir(), Queue: -1},
		"a negative number":    {Folder: t.TempDir(), Full: -1},
		"a negative time":      {Folder: t.TempDir(), Every: -1},
		"a disk without space": incident.Config{Folder: t.TempDir()}.WithDisk(&faulty{fail: func(_ int, op string) bool { return op == "Write" }}),
	} {
		if w, err := incident.NewWriter(cfg); err == nil {
			t.Errorf("%s: accepted", name)
			must.Do(t, w.Close(context.Background()))
		} else if err.Error() == "" {
			t.Errorf("%s: an empty error", name)
		}
	}
}
