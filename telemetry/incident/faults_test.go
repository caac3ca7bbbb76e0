package incident_test

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry/incident"
)

// If any call of the disk fails, the findings are all accounted for, no draft stays,
// what is in the folder is whole, and the next is written.
func TestEveryCallOfTheDiskMayFail(t *testing.T) {
	for k := 0; ; k++ {
		dir, hit := t.TempDir(), false
		disk := &faulty{}
		w := writer(t, incident.Config{Folder: dir, MaxFiles: 2}.WithDisk(disk))
		disk.mu.Lock()
		disk.calls = 0
		disk.fail = func(call int, _ string) bool {
			hit = hit || call == k
			return call == k
		}
		disk.mu.Unlock()
		for _, tag := range []core.Tag{"a", "b", "c"} {
			w.Report(named(tag))
		}
		err := w.Flush(t.Context())
		disk.mu.Lock()
		disk.fail = nil
		disk.mu.Unlock()
		w.Report(named("d"))
		must.Do(t, w.Flush(t.Context()), w.Close(t.Context()))
		s := w.Stats()
		balanced(t, s)
		if !hit {
			if k < 4 || err != nil || s.Failed > 0 {
				t.Errorf("%d calls, %v, %+v", k, err, s)
			}
			return
		}
		if !errors.Is(err, errFault) {
			t.Errorf("call %d: Flush says %v", k, err)
		}
		files := list(t, dir)
		if slices.ContainsFunc(files, isDraft) || len(files) > 2 {
			t.Errorf("call %d leaves %q", k, files)
		}
		for _, in := range readAll(t, dir) {
			if in.Finding.Kind != names.FindingOutOfBoundsWrite {
				t.Errorf("call %d leaves %+v", k, in)
			}
		}
	}
}

// A file that cannot be removed costs its place and no more: what comes later
// is written, the folder keeps its limits, and the failure is said each time.
func TestAFileThatCannotBeRemovedBlocksNoOther(t *testing.T) {
	dir := t.TempDir()
	disk := &faulty{}
	w := writer(t, incident.Config{Folder: dir, MaxFiles: 2}.WithDisk(disk))
	w.Report(named("stays"))
	must.Do(t, w.Flush(t.Context()))
	disk.stuck = w.Files()[0]
	for i, tag := range []core.Tag{"a", "b", "c"} {
		w.Report(named(tag))
		if err := w.Flush(t.Context()); (i > 0) != errors.Is(err, errFault) {
			t.Errorf("%s: %v", tag, err)
		}
	}
	var tags []string
	for _, in := range readAll(t, dir) {
		tags = append(tags, in.Finding.Victim.Tag)
	}
	if !slices.Equal(tags, []string{"stays", "c"}) {
		t.Errorf("%q", tags)
	}
	if s := w.Stats(); s.Written != 4 || s.Failed != 0 || s.Removed != 2 {
		t.Errorf("%+v", s)
	}
	must.Do(t, w.Close(t.Context()))
}

// Where nothing makes room the folder keeps its limit, and the finding counts
// as failed.
func TestAFolderOfFilesThatCannotBeRemovedStaysWithinItsLimit(t *testing.T) {
	dir := t.TempDir()
	disk := &faulty{}
	w := writer(t, incident.Config{Folder: dir, MaxFiles: 1}.WithDisk(disk))
	w.Report(named("stays"))
	must.Do(t, w.Flush(t.Context()))
	disk.stuck = w.Files()[0]
	w.Report(named("a"))
	expect.Error(t, w.Close(t.Context()), errFault, "Close")
	if s := w.Stats(); s.Written != 1 || s.Failed != 1 || len(list(t, dir)) != 1 {
		t.Errorf("%+v, %q", s, list(t, dir))
	}
}

func TestAFolderThatIsRemovedIsMadeAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "incidents")
	w := writer(t, incident.Config{Folder: dir})
	must.Do(t, os.RemoveAll(dir))
	w.Report(named("a"))
	must.Do(t, w.Close(t.Context()))
	if names := list(t, dir); len(names) != 1 {
		t.Errorf("%q", names)
	}
}

// Where a file stands in the place of the folder nothing can be written, which
// is counted and said, and costs nothing else.
func TestWhatCannotBeWrittenIsCountedAndSaid(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "incidents")
	w := writer(t, incident.Config{Folder: dir})
	must.Do(t, os.RemoveAll(dir))
	must.Do(t, os.WriteFile(dir, nil, 0o600))
	w.Report(named("a"))
	if err := w.Close(t.Context()); err == nil {
		t.Error("Close says nothing")
	}
	if s := w.Stats(); s.Failed != 1 || s.Written != 0 || len(w.Files()) != 0 {
		t.Errorf("%+v", s)
	}
	expect.ErrorOf(deliver(t.Context(), w, named("b")))(t, core.ErrClosed, "Urgent after Close")
	w.Report(named("c"))
	balanced(t, w.Stats())
}

// stuck is a writer whose disk does not answer until release.
func stuck(t *testing.T, cfg incident.Config) (w *incident.Writer, disk *faulty, release func()) {
	disk = &faulty{}
	w = writer(t, cfg.WithDisk(disk))
	disk.gate, disk.writes = make(chan struct{}), make(chan struct{}, 1)
	return w, disk, func() { close(disk.gate) }
}

func TestASlowDiskNeverHoldsUpWhoReports(t *testing.T) {
	dir := t.TempDir()
	w, disk, release := stuck(t, incident.Config{Folder: dir, Queue: 4, Full: 1000})
	w.Report(named("first"))
	<-disk.writes // the writer is at the disk
	for range 100 {
		w.Report(named("more")) // returns, or the test does not end
	}
	if s := w.Stats(); s.Dropped != 96 {
		t.Errorf("%+v, want 96 dropped by a queue of 4", s)
	}
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	expect.Error(t, w.Flush(short), context.DeadlineExceeded, "Flush on a stuck disk")
	release()
	must.Do(t, w.Close(t.Context()))
	if s := w.Stats(); s.Written != 5 || len(list(t, dir)) != 5 {
		t.Errorf("%+v", s)
	}
	balanced(t, w.Stats())
}

// The finding that ends the process goes before those that wait, whatever the
// queue and the limit say.
func TestADeliveredFindingGoesFirst(t *testing.T) {
	w, disk, release := stuck(t, incident.Config{Folder: t.TempDir(), Queue: 2})
	for _, tag := range []core.Tag{"a", "b", "c", "d"} {
		w.Report(named(tag))
		if tag == "a" {
			<-disk.writes
		}
	}
	flushed := make(chan error, 1)
	go func() { flushed <- w.Flush(context.Background()) }()
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	expect.ErrorOf(deliver(short, w, named("late")))(t, context.DeadlineExceeded, "Urgent on a stuck disk")
	release()
	path, err := deliver(t.Context(), w, named("last"))
	must.Do(t, err, <-flushed)
	in, err := incident.ReadFile(path)
	must.Do(t, err)
	if in.Finding.Victim.Tag != "last" {
		t.Errorf("%s holds %q", path, in.Finding.Victim.Tag)
	}
	must.Do(t, w.Close(t.Context()))
	var order []string
	for _, path := range w.Files() {
		in, err := incident.ReadFile(path)
		must.Do(t, err)
		order = append(order, in.Finding.Victim.Tag)
	}
	if slices.Index(order, "late") > slices.Index(order, "b") {
		t.Errorf("written in the order %q: what was delivered did not go first", order)
	}
	if s := w.Stats(); s.Dropped != 1 || s.Written != 5 {
		t.Errorf("%+v", s)
	}
	balanced(t, w.Stats())
}

func TestCloseIsBoundedOnADiskThatDoesNotAnswer(t *testing.T) {
	w, disk, release := stuck(t, incident.Config{Folder: t.TempDir()})
	for _, tag := range []core.Tag{"a", "b", "c"} {
		w.Report(named(tag))
	}
	<-disk.writes
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	expect.Error(t, w.Close(short), context.DeadlineExceeded, "Close")
	release()
	_ = w.Close(t.Context()) // says what was dropped, or not
	if s := w.Stats(); s.Dropped != 2 || s.Written != 1 {
		t.Errorf("%+v, want what waited to be dropped", s)
	}
	balanced(t, w.Stats())
}

// A path that was given away and could not be written is told, and its sort's
// repeats do not name it.
func TestAFileThatCouldNotBeWrittenIsTold(t *testing.T) {
	disk := &faulty{}
	told := make(chan string, 10)
	w := writer(t, incident.Config{Folder: t.TempDir(), Full: 1, Failed: func(path string, err error) {
		if !errors.Is(err, errFault) {
			t.Errorf("%s: %v", path, err)
		}
		told <- path
	}}.WithDisk(disk))
	disk.mu.Lock()
	disk.fail = func(_ int, op string) bool { return op == "Write" }
	disk.mu.Unlock()
	path := w.Take(named("a"))
	if err := w.Flush(t.Context()); !errors.Is(err, errFault) {
		t.Errorf("Flush: %v", err)
	}
	if got := <-told; got != path || path == "" {
		t.Errorf("told of %q, want %q", got, path)
	}
	if again := w.Take(named("a")); again != "" {
		t.Errorf("a repeat names %q", again)
	}
	disk.mu.Lock()
	disk.fail = nil
	disk.mu.Unlock()
	if path := w.Take(named("b")); path == "" || w.Flush(t.Context()) != nil || len(told) != 0 {
		t.Errorf("%q, told of %d more", path, len(told))
	}
}

// A callback that panics or ends the writer's goroutine costs no other incident.
func TestCallbacksThatDoNotReturnCostNoOtherIncident(t *testing.T) {
	before := slog.Default()
	slog.SetDefault(slog.New(slog.DiscardHandler)) // which is told of the panics
	defer slog.SetDefault(before)
	for _, exits := range []bool{false, true} {
		unwind := func() {
			if exits {
				runtime.Goexit()
			}
			panic("the callback's bug")
		}
		dir, failed := t.TempDir(), 0
		var full atomic.Bool
		disk := &faulty{fail: func(_ int, op string) bool { return full.Load() && op == "Write" }}
		w := writer(t, incident.Config{Folder: dir,
			Around: func(context.Context, core.Finding) iter.Seq[incident.Surroundings] { unwind(); return nil },
			Failed: func(string, error) { failed++; unwind() }}.WithDisk(disk))
		w.Report(named("first"))
		must.Do(t, w.Flush(t.Context()))
		full.Store(true)
		for range 2 {
			w.Report(named("no room"))
			expect.Error(t, w.Flush(t.Context()), errFault, "flush")
		}
		_, err := deliver(t.Context(), w, named("urgent"))
		full.Store(false)
		w.Report(named("last"))
		_ = w.Flush(t.Context())
		if s := w.Stats(); failed != 3 || s.Failed != 3 || err == nil || s.Written != 2 {
			t.Errorf("exits %v: %d told, %v; %+v", exits, failed, err, s)
		}
		must.Do(t, w.Close(t.Context()))
	}
}
