package incident_test

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry/incident"
)

// sumOf is how many findings the files stand for.
func sumOf(all []*incident.Incident) (files, omitted uint64) {
	for _, in := range all {
		files++
		omitted += in.Repeats.Omitted
	}
	return files, omitted
}

func TestAStormIsAFewFilesThatSayHowManyThereWere(t *testing.T) {
	dir := t.TempDir()
	now := time.Date(2026, 11, 22, 3, 45, 0, 0, time.UTC)
	w := writer(t, incident.Config{Folder: dir, Full: 3, Every: time.Minute}.WithClock(func() time.Time { return now }))
	for range 150 { // two and a half minutes
		w.Report(named("storm"))
		now = now.Add(time.Second)
	}
	w.Report(named("bystander"))
	must.Do(t, w.Close(t.Context()))
	all := readAll(t, dir)
	files, omitted := sumOf(all)
	// Three in full, one after each of two minutes, the last at the end, and
	// the bystander.
	if files != 7 || files+omitted != 151 {
		t.Errorf("%d files say %d were left out", files, omitted)
	}
	for _, in := range all {
		if in.Repeats.Omitted > 0 && in.Repeats.Since.IsZero() {
			t.Errorf("%+v does not say since when", in.Repeats)
		}
	}
	if s := w.Stats(); s.Written != 7 || s.Omitted != 144 {
		t.Errorf("%+v", s)
	}
	balanced(t, w.Stats())
}

// A finding that finds the queue full takes no count with it: the next of its
// sort that is written says how many were left out.
func TestAFullQueueLosesNoCountOfRepeats(t *testing.T) {
	now := time.Date(2026, 11, 22, 3, 45, 0, 0, time.UTC)
	dir := t.TempDir()
	w, disk, release := stuck(t, incident.Config{Folder: dir, Full: 1, Every: time.Minute, Queue: 1}.WithClock(func() time.Time { return now }))
	w.Report(named("storm"))
	<-disk.writes // the writer is at the disk
	for range 5 {
		w.Report(named("storm"))
	}
	w.Report(named("bystander")) // fills the queue
	now = now.Add(2 * time.Minute)
	w.Report(named("storm"))
	if s := w.Stats(); s.Dropped != 1 {
		t.Errorf("%+v, want one dropped", s)
	}
	release()
	must.Do(t, w.Flush(t.Context()))
	w.Report(named("storm"))
	must.Do(t, w.Close(t.Context()))
	if files, omitted := sumOf(readAll(t, dir)); files != 3 || omitted != 5 {
		t.Errorf("%d files say that %d were left out", files, omitted)
	}
	balanced(t, w.Stats())
}

// Findings that differ in kind, tag or stacks are no repeats of each other.
func TestOnlyTheSameBugIsARepeat(t *testing.T) {
	w := writer(t, incident.Config{Folder: t.TempDir(), Full: 1})
	base := named("a")
	base.AllocStack = core.Stack{1, 2}
	kind, tag, source, stack, site := base, base, base, base, named("a")
	kind.Kind, tag.Victim.Tag, source.Source, stack.AllocStack = names.FindingUnderflow, "b", "oracle", core.Stack{1, 3}
	site.Suspects = []core.UseRecord{{Launch: "sort"}}
	moved := base
	moved.AllocStack, moved.FreeStack = nil, core.Stack{1, 2}
	for _, f := range []core.Finding{base, kind, tag, source, stack, site, moved} {
		w.Report(f)
		w.Report(f)
	}
	must.Do(t, w.Flush(t.Context()))
	if s := w.Stats(); s.Written != 7 {
		t.Errorf("%+v, want each of 7 written once", s)
	}
	must.Do(t, w.Close(t.Context()))
	if s := w.Stats(); s.Written != 14 || s.Omitted != 0 {
		t.Errorf("%+v, want the newest of each written at the end", s)
	}
}

func TestSortsAreBounded(t *testing.T) {
	w := writer(t, incident.Config{Folder: t.TempDir(), Full: 1, Queue: 10_000, MaxFiles: 10}.WithDisk(unsynced{}))
	for i := range 1500 {
		w.Report(named(core.Tag(fmt.Sprint("tag", i))))
	}
	must.Do(t, w.Close(t.Context()))
	if s := w.Stats(); s.Written != 1026 { // 1024, the first of the others, and the newest of those
		t.Errorf("%+v", s)
	}
	balanced(t, w.Stats())
}

func TestHammerOfReportsLosesNoCount(t *testing.T) {
	dir := t.TempDir()
	var asked atomic.Int64
	w := writer(t, incident.Config{Folder: dir, Full: 2, Every: 5 * time.Millisecond, Queue: 16, MaxFiles: 8,
		Around: func(context.Context, core.Finding) iter.Seq[incident.Surroundings] {
			return func(yield func(incident.Surroundings) bool) {
				if yield(incident.Surroundings{Stack: "s", Incomplete: "more is to come"}) {
					if asked.Add(1)%40 == 0 {
						time.Sleep(60 * time.Millisecond) // longer than a file waits
					}
					yield(incident.Surroundings{Stack: "s"})
				}
			}
		}})
	const goroutines, each = 8, 200
	var group sync.WaitGroup
	start := make(chan struct{})
	for g := range goroutines {
		group.Go(func() {
			<-start
			for i := range each {
				f := named(core.Tag(fmt.Sprint("tag", g%3)))
				switch i % 50 {
				case 7:
					_, _ = deliver(context.Background(), w, f)
				case 9:
					_ = w.Flush(context.Background())
					w.Report(f)
				default:
					w.Report(f)
				}
				_, _ = w.Stats(), w.Files()
			}
		})
	}
	close(start)
	group.Wait()
	must.Do(t, w.Flush(t.Context()))
	for _, in := range readAll(t, dir) {
		if in.Incomplete != "" {
			t.Errorf("%+v", in.Surroundings)
		}
	}
	must.Do(t, w.Close(t.Context()))
	s := w.Stats()
	balanced(t, s)
	if s.Reported != goroutines*each || s.Failed != 0 || s.Written < goroutines*each/50 || len(list(t, dir)) > 8 {
		t.Errorf("%+v, %d files", s, len(list(t, dir)))
	}
}
