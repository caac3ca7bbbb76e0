package incident_test

import (
	"context"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/telemetry/incident"
)

// slow is a runtime that knows its device at once, and the rest when it is let.
type slow struct {
	held chan struct{}
	once sync.Once
}

func newSlow(t *testing.T) *slow {
	s := &slow{held: make(chan struct{})}
	t.Cleanup(s.answer)
	return s
}

func (s *slow) answer() { s.once.Do(func() { close(s.held) }) }

func (s *slow) around(ctx context.Context, f core.Finding) iter.Seq[incident.Surroundings] {
	return func(yield func(incident.Surroundings) bool) {
		known := incident.Surroundings{Stack: "stack", Device: incident.Device{Kind: "sim", Name: "device of " + string(f.Victim.Tag)}, Incomplete: "guard, memory and history are not known yet"}
		if !yield(known) {
			return
		}
		select {
		case <-s.held:
		case <-ctx.Done():
			return
		}
		known.Incomplete, known.Guard.Mode, known.Memory.Limit = "", "hunt", 7
		known.History = []incident.Event{incident.FromEvent(core.Event{Op: core.OpAllocate})}
		yield(known)
	}
}

// files waits until so many files are there. How long that takes is the machine's
// business; a test that waits for ever fails by its own limit.
func files(t *testing.T, w *incident.Writer, n int) []string {
	t.Helper()
	for len(w.Files()) < n {
		if t.Context().Err() != nil {
			t.Fatal("the files do not come")
		}
		time.Sleep(time.Millisecond)
	}
	return w.Files()
}

func TestAFileIsThereAtOnceAndTheRestWhenItIsKnown(t *testing.T) {
	s := newSlow(t)
	w := writer(t, incident.Config{Folder: t.TempDir(), Around: s.around})
	path := w.Take(named("a"))
	if got := files(t, w, 1); got[0] != path {
		t.Fatalf("the file is %q, and %q was said", got, path)
	}
	time.Sleep(300 * time.Millisecond) // longer than anybody waited before
	in, err := incident.ReadFile(path)
	check(t, err)
	if in.Finding.Kind != "oob-write" || in.Finding.Victim.Tag != "a" || in.Device.Name != "device of a" || in.Stack == "" {
		t.Errorf("at once there is %+v", in)
	}
	if !strings.Contains(in.Incomplete, "guard, memory and history are not known yet") || !strings.Contains(in.Incomplete, "written again") || !in.Completed.IsZero() || in.Memory.Limit != 0 {
		t.Errorf("it does not say what is to come: %+v", in.Surroundings)
	}
	if text := in.String(); !strings.Contains(text, "not known yet") || !strings.Contains(text, "device of a") {
		t.Errorf("printed:\n%s", text)
	}
	s.answer()
	check(t, w.Flush(t.Context()))
	whole, err := incident.ReadFile(path)
	check(t, err)
	if whole.Incomplete != "" || whole.Completed.IsZero() || whole.Memory.Limit != 7 || whole.Guard.Mode != "hunt" || len(whole.History) != 1 || whole.Number != in.Number {
		t.Errorf("afterwards there is %+v", whole)
	}
	check(t, w.Close(t.Context()))
	if st := w.Stats(); st.Written != 1 || st.Incomplete != 0 || len(w.Files()) != 1 {
		t.Errorf("%+v", st)
	}
	balanced(t, w.Stats())
}

// A runtime that is stuck delays no file behind the first, and each is completed.
func TestEachOfManyLateIncidentsIsCompleted(t *testing.T) {
	s, dir := newSlow(t), t.TempDir()
	w := writer(t, incident.Config{Folder: dir, Around: s.around, Queue: 4})
	for i, tag := range []core.Tag{"a", "b", "c", "d", "e", "f"} {
		w.Report(named(tag))
		files(t, w, i+1)
	}
	s.answer()
	check(t, w.Flush(t.Context()))
	whole, unasked := 0, 0
	for _, in := range readAll(t, dir) {
		switch {
		case in.Incomplete == "" && in.Device.Name == "device of "+in.Finding.Victim.Tag && in.Memory.Limit == 7:
			whole++
		case strings.Contains(in.Incomplete, "was not asked"):
			unasked++
		default:
			t.Errorf("%+v", in)
		}
	}
	if whole != 4 || unasked != 2 {
		t.Errorf("%d are whole, and for %d the runtime was not asked", whole, unasked)
	}
	check(t, w.Close(t.Context()))
	if st := w.Stats(); st.Written != 6 || st.Incomplete != 2 {
		t.Errorf("%+v", st)
	}
	balanced(t, w.Stats())
}

// What never comes costs Close a bounded time and no goroutine, which goleak would
// see, and the file says so.
func TestARuntimeThatNeverAnswersLeavesFilesThatSaySo(t *testing.T) {
	s, dir := newSlow(t), t.TempDir()
	w := writer(t, incident.Config{Folder: dir, Around: s.around})
	for i, tag := range []core.Tag{"a", "b"} {
		w.Report(named(tag))
		files(t, w, i+1)
	}
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := w.Flush(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Flush: %v", err)
	}
	check(t, w.Close(t.Context()))
	all := readAll(t, dir)
	for _, in := range all {
		if !strings.Contains(in.Incomplete, "did not tell before the writer was closed") || in.Finding.Victim == nil {
			t.Errorf("%+v", in.Surroundings)
		}
	}
	if st := w.Stats(); len(all) != 2 || st.Written != 2 || st.Incomplete != 2 {
		t.Errorf("%d files, %+v", len(all), st)
	}
	balanced(t, w.Stats())
}

func TestACloseOutOfTimeLeavesWhatIsThere(t *testing.T) {
	s, dir := newSlow(t), t.TempDir()
	w := writer(t, incident.Config{Folder: dir, Around: s.around})
	w.Report(named("a"))
	files(t, w, 1)
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_ = w.Close(short) // it may have been quick
	check(t, ignoreDeadline(w.Close(t.Context())))
	if all := readAll(t, dir); len(all) != 1 || all[0].Incomplete == "" {
		t.Errorf("%+v", all)
	}
	balanced(t, w.Stats())
}

func ignoreDeadline(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// The finding that ends the process does not wait for a runtime that its own
// reporter holds up.
func TestADeliveredFindingDoesNotWaitForTheRuntime(t *testing.T) {
	s := newSlow(t)
	w := writer(t, incident.Config{Folder: t.TempDir(), Around: s.around})
	promised, wait := w.Urgent(named("last"))
	path, err := wait(t.Context())
	check(t, err)
	in, err := incident.ReadFile(path)
	check(t, err)
	if path != promised || in.Finding.Victim.Tag != "last" || in.Incomplete == "" {
		t.Errorf("%s, promised %s: %+v", path, promised, in)
	}
	s.answer()
	check(t, errors.Join(w.Flush(t.Context()), w.Close(t.Context())))
	if in, err = incident.ReadFile(path); err != nil || in.Incomplete != "" {
		t.Errorf("%v, %+v", err, in)
	}
}

// Whichever call of the file system fails while a file is completed: it stays
// whole, as it was or as it is to be, no draft stays, and the next is completed.
func TestEveryCallOfTheFileSystemMayFailForTheSecondWrite(t *testing.T) {
	for k := 0; ; k++ {
		s, dir, hit := newSlow(t), t.TempDir(), false
		disk := &faulty{Files: incident.Disk()}
		w := writer(t, incident.Config{Folder: dir, Around: s.around}.WithFiles(disk))
		for i, tag := range []core.Tag{"a", "b"} {
			w.Report(named(tag))
			files(t, w, i+1)
		}
		disk.mu.Lock()
		disk.calls = 0
		disk.fail = func(call int, _ string) bool {
			hit = hit || call == k
			return call == k
		}
		disk.mu.Unlock()
		s.answer()
		err := errors.Join(w.Flush(t.Context()), w.Close(t.Context()))
		names := list(t, dir)
		if slices.ContainsFunc(names, incident.IsDraft) || len(names) != 2 {
			t.Errorf("call %d leaves %q", k, names)
		}
		whole := 0
		for _, in := range readAll(t, dir) {
			if in.Incomplete == "" && in.Memory.Limit == 7 {
				whole++
			} else if !strings.Contains(in.Incomplete, "not known yet") {
				t.Errorf("call %d leaves %+v", k, in)
			}
		}
		st := w.Stats()
		balanced(t, st)
		if st.Written != 2 || uint64(whole)+st.Incomplete < 2 {
			t.Errorf("call %d: %d are whole, %+v", k, whole, st)
		}
		if !hit {
			if k < 6 || err != nil || whole != 2 {
				t.Errorf("%d calls, %v, %d whole", k, err, whole)
			}
			return
		}
		if !errors.Is(err, errFault) {
			t.Errorf("call %d: nobody is told: %v", k, err)
		}
	}
}

// What is completed takes the place of older files only, and one that had to go
// meanwhile does not come back.
func TestACompletedFileKeepsTheBoundsOfTheFolder(t *testing.T) {
	s, dir := newSlow(t), t.TempDir()
	w := writer(t, incident.Config{Folder: dir, MaxFiles: 2, Around: s.around})
	for i, tag := range []core.Tag{"a", "b", "c"} {
		f := named(tag)
		f.Time = f.Time.Add(time.Duration(i) * time.Second)
		w.Report(f)
		for w.Stats().Written <= uint64(i) {
			time.Sleep(time.Millisecond)
		}
	}
	s.answer()
	check(t, w.Flush(t.Context()))
	var tags []string
	for _, in := range readAll(t, dir) {
		tags = append(tags, in.Finding.Victim.Tag)
		if in.Incomplete != "" {
			t.Errorf("%+v", in.Surroundings)
		}
	}
	if !slices.Equal(tags, []string{"b", "c"}) {
		t.Errorf("the folder holds %q", tags)
	}
	check(t, w.Close(t.Context()))
}

// A path that is said is that of the file, whatever the writer does by then.
func TestTheFileIsWhereTakeSaid(t *testing.T) {
	dir := t.TempDir()
	w := writer(t, incident.Config{Folder: dir, Full: 1})
	first, repeat, other := w.Take(named("a")), w.Take(named("a")), w.Take(named("b"))
	check(t, w.Flush(t.Context()))
	if first != repeat || first == other || filepath.Dir(first) != dir {
		t.Errorf("%q, %q, %q", first, repeat, other)
	}
	for _, path := range []string{first, other} {
		_, err := os.Stat(path)
		check(t, err)
	}
	check(t, w.Close(t.Context()))
	if path := w.Take(named("c")); path != "" {
		t.Errorf("of a closed writer: %q", path)
	}
}
