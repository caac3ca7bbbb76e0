package incident_test

import (
	"context"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry/incident"
)

// slow is a runtime that knows its device at once, and the rest when it is let.
type slow struct {
	asked, held chan struct{}
	once        sync.Once
	deaf        bool // does not hear that its time has passed
}

func newSlow(t *testing.T) *slow {
	s := &slow{asked: make(chan struct{}, 100), held: make(chan struct{})}
	t.Cleanup(s.answer)
	return s
}

func (s *slow) answer() { s.once.Do(func() { close(s.held) }) }

func (s *slow) around(ctx context.Context, f core.Finding) iter.Seq[incident.Surroundings] {
	if s.deaf {
		ctx = context.WithoutCancel(ctx)
	}
	return func(yield func(incident.Surroundings) bool) {
		known := incident.Surroundings{Stack: "stack", Device: incident.Device{Kind: "sim", Name: "device of " + string(f.Victim.Tag)}, Incomplete: "guard, memory and history: not known in time"}
		if !yield(known) {
			return
		}
		s.asked <- struct{}{}
		select {
		case <-s.held:
		case <-ctx.Done():
			return
		}
		known.Incomplete, known.Guard.Mode, known.Memory.Limit = "", "hunt", 7
		known.History = []incident.Event{incident.FromEvent(oplog.Event{Op: oplog.OpAllocate})}
		yield(known)
	}
}

func TestAFileIsWrittenOnceWhenAllIsKnown(t *testing.T) {
	s, dir := newSlow(t), t.TempDir()
	w := writer(t, incident.Config{Folder: dir, Around: s.around})
	path := w.Take(named("a"))
	<-s.asked
	if names := list(t, dir); len(names) > 0 {
		t.Errorf("before all is known there is %q", names)
	}
	s.answer()
	must.Do(t, w.Flush(t.Context()))
	in := must.Get(incident.ReadFile(path))(t)
	if in.Incomplete != "" || in.Memory.Limit != 7 || in.Guard.Mode != "hunt" || len(in.History) != 1 || in.Device.Name != "device of a" || in.Stack == "" {
		t.Errorf("there is %+v", in)
	}
	must.Do(t, w.Close(t.Context()))
	if st := w.Stats(); st.Written != 1 || st.Incomplete != 0 || len(w.Files()) != 1 {
		t.Errorf("%+v", st)
	}
	balanced(t, w.Stats())
}

// A runtime that never answers costs what surrounded its findings, which their files
// say, and a bounded time for all of them together.
func TestARuntimeThatNeverAnswersLeavesFilesThatSaySo(t *testing.T) {
	t.Parallel() // it waits for the time to pass
	for name, deaf := range map[string]bool{"it hears that its time has passed": false, "it hears nothing": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, dir, start := newSlow(t), t.TempDir(), time.Now()
			s.deaf = deaf
			w := writer(t, incident.Config{Folder: dir, Around: s.around})
			for _, tag := range []core.Tag{"a", "b", "c", "d", "e"} {
				w.Report(named(tag))
			}
			must.Do(t, w.Flush(t.Context()))
			if took := time.Since(start); took < 2*time.Second || took > 10*time.Second {
				t.Errorf("the files came after %v", took)
			}
			all := readAll(t, dir)
			for i, in := range all {
				if i == 0 && in.Device.Name != "device of a" || in.Finding.Victim == nil || !strings.Contains(in.Incomplete, "in time") || !strings.Contains(in.String(), "in time") {
					t.Errorf("%+v", in.Surroundings)
				}
			}
			if st := w.Stats(); len(all) != 5 || st.Written != 5 || st.Incomplete != 5 {
				t.Errorf("%d files, %+v", len(all), st)
			}
			s.answer()
			must.Do(t, w.Close(t.Context()))
			balanced(t, w.Stats())
		})
	}
}

// A runtime that was stuck for a while costs no later file anything.
func TestARuntimeThatAnswersAgainIsAskedAgain(t *testing.T) {
	t.Parallel() // it waits for the time to pass
	s := newSlow(t)
	s.deaf = true
	w := writer(t, incident.Config{Folder: t.TempDir(), Around: s.around})
	first := w.Take(named("a"))
	must.Do(t, w.Flush(t.Context()))
	s.answer()
	second := w.Take(named("b"))
	must.Do(t, w.Flush(t.Context()), w.Close(t.Context()))
	for path, whole := range map[string]bool{first: false, second: true} {
		in := must.Get(incident.ReadFile(path))(t)
		if (in.Incomplete == "") != whole || in.Device.Name == "" {
			t.Errorf("%+v", in.Surroundings)
		}
	}
	if st := w.Stats(); st.Written != 2 || st.Incomplete != 1 {
		t.Errorf("%+v", st)
	}
}

// Close has time for the files, even where the runtime never answers.
func TestACloseThatIsShortOfTimeWritesTheFilesAsTheyAre(t *testing.T) {
	t.Parallel() // it waits for the time to pass
	s, dir := newSlow(t), t.TempDir()
	w := writer(t, incident.Config{Folder: dir, Around: s.around})
	for _, tag := range []core.Tag{"a", "b", "c"} {
		w.Report(named(tag))
	}
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	must.Do(t, w.Close(short))
	all := readAll(t, dir)
	for _, in := range all {
		if in.Incomplete == "" {
			t.Errorf("%+v", in.Surroundings)
		}
	}
	if st := w.Stats(); len(all) != 3 || st.Written != 3 || st.Incomplete != 3 {
		t.Errorf("%d files, %+v", len(all), st)
	}
	balanced(t, w.Stats())
}

// The finding that ends the process waits neither for a runtime that its own reporter
// holds up nor for the surroundings of another finding.
func TestADeliveredFindingDoesNotWaitForTheRuntime(t *testing.T) {
	t.Parallel() // it waits for the time to pass
	s := newSlow(t)
	w := writer(t, incident.Config{Folder: t.TempDir(), Around: s.around})
	w.Report(named("earlier"))
	<-s.asked
	promised, wait := w.Urgent(named("last"))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // which is all that the process has
	defer cancel()
	path := must.Get(wait(ctx))(t)
	in := must.Get(incident.ReadFile(path))(t)
	if path != promised || in.Finding.Victim.Tag != "last" || in.Incomplete == "" || in.Device.Name != "device of last" {
		t.Errorf("%s, promised %s: %+v", path, promised, in)
	}
	must.Do(t, w.Close(t.Context()))
	if st := w.Stats(); st.Written != 2 || st.Incomplete != 2 {
		t.Errorf("%+v", st)
	}
}

// A path that is said is that of the file.
func TestTheFileIsWhereTakeSaid(t *testing.T) {
	dir := t.TempDir()
	w := writer(t, incident.Config{Folder: dir, Full: 1})
	first, repeat, other := w.Take(named("a")), w.Take(named("a")), w.Take(named("b"))
	must.Do(t, w.Flush(t.Context()))
	if first != repeat || first == other || filepath.Dir(first) != dir {
		t.Errorf("%q, %q, %q", first, repeat, other)
	}
	for _, path := range []string{first, other} {
		_, err := os.Stat(path)
		must.Do(t, err)
	}
	must.Do(t, w.Close(t.Context()))
	if path := w.Take(named("c")); path != "" {
		t.Errorf("of a closed writer: %q", path)
	}
}
