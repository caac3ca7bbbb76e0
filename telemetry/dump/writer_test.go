package dump_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry/dump"
	"github.com/fencepost-gpu/fencepost/telemetry/history"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// small is a history of one allocation.
func small() (history.Source, error) {
	block := core.BlockID{Ptr: 0x1000, Generation: 7, AllocStream: 1}
	event := oplog.Event{Op: oplog.OpAllocate, Time: time.Unix(1_700_000_000, 0), Stream: 1, Block: block, Tag: "sort", Requested: 100, Bytes: 256}
	return history.Source{
		Events:    func() []oplog.Event { return []oplog.Event{event} },
		JSONLines: func(w io.Writer) error { _, err := io.WriteString(w, "{\"op\":\"allocate\"}\n"); return err },
	}, nil
}

// clock is one that a test turns.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func writer(t *testing.T, cfg dump.Config) *dump.Writer {
	t.Helper()
	if cfg.Source == nil {
		cfg.Source = small
	}
	w := must.Get(dump.NewWriter(cfg))(t)
	t.Cleanup(func() { _ = w.Close(context.Background()) })
	return w
}

func counted(w *dump.Writer, trigger dump.Trigger, outcome dump.Outcome) uint64 {
	for _, c := range w.Stats() {
		if c.Trigger == trigger && c.Outcome == outcome {
			return c.Count
		}
	}
	return 0
}

func list(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries := must.Get(os.ReadDir(dir))(t)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func unpacked(t *testing.T, path string) []byte {
	t.Helper()
	file := must.Get(os.Open(path))(t)
	defer file.Close()
	packed := must.Get(gzip.NewReader(file))(t)
	return must.Get(io.ReadAll(packed))(t)
}

func TestADumpIsTheHistoryInEveryForm(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made")
	w := writer(t, dump.Config{Folder: dir})
	paths, err := w.Now(t.Context(), dump.Request)
	if err != nil || len(paths) != 3 {
		t.Fatalf("%v %v", paths, err)
	}
	if text := unpacked(t, paths[0]); string(text) != "{\"op\":\"allocate\"}\n" || !strings.HasSuffix(paths[0], "-dump-request.jsonl.gz") {
		t.Errorf("%s is %q", paths[0], text)
	}
	var trace struct{ TraceEvents []map[string]any }
	if text := unpacked(t, paths[1]); json.Unmarshal(text, &trace) != nil || len(trace.TraceEvents) == 0 {
		t.Errorf("%s is %q", paths[1], text)
	}
	pickle, err := os.ReadFile(paths[2])
	if err != nil || !strings.HasPrefix(string(pickle), "\x80") || !strings.HasSuffix(string(pickle), ".") || !strings.Contains(string(pickle), "sort") {
		t.Errorf("%s is %q, %v", paths[2], pickle, err)
	}
	if names := list(t, dir); len(names) != 3 {
		t.Errorf("the folder has %q", names)
	}
}

// A storm of findings is one dump; the loss of the device and a request are
// dumped in any case.
func TestAStormIsDumpedOnce(t *testing.T) {
	c := newClock()
	w := writer(t, dump.Config{Folder: t.TempDir(), Every: time.Minute}.WithClock(c.now))
	for range 100 {
		w.Trigger(dump.Finding)
	}
	c.pass(59 * time.Second)
	w.Trigger(dump.Refusals)
	w.Trigger(dump.StickyError)
	if _, err := w.Now(t.Context(), dump.Request); err != nil { // which is after the others
		t.Fatal(err)
	}
	c.pass(time.Minute)
	w.Trigger(dump.Refusals)
	must.Do(t, w.Close(t.Context()))
	for key, want := range map[dump.Trigger][2]uint64{dump.Finding: {1, 99}, dump.Refusals: {1, 1}, dump.StickyError: {1, 0}, dump.Request: {1, 0}} {
		if written, limited := counted(w, key, dump.Written), counted(w, key, dump.Limited); written != want[0] || limited != want[1] {
			t.Errorf("%s: %d written, %d limited; want %v", key, written, limited, want)
		}
	}
}

// The folder keeps the newest dumps, and what is not a dump.
func TestTheFolderKeepsTheNewestDumps(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	const foreign = "20200101T000000.000000000Z-000001-oob-write.json"
	must.Do(t, os.WriteFile(filepath.Join(dir, foreign), []byte("{}"), 0o600))
	w := writer(t, dump.Config{Folder: dir, MaxFiles: 6}.WithClock(c.now))
	var newest []string
	for range 5 {
		c.pass(time.Second)
		paths := must.Get(w.Now(t.Context(), dump.Request))(t)
		newest = append(newest, paths...)
	}
	want := []string{foreign}
	for _, path := range newest[len(newest)-6:] {
		want = append(want, filepath.Base(path))
	}
	if got := list(t, dir); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("the folder has %q, want %q", got, want)
	}
}

// A dump that does not fit as a whole says so, and does not take its own first
// file for an old one.
func TestADumpLargerThanTheFolderKeepsWhatFits(t *testing.T) {
	dir := t.TempDir()
	lines := make([]byte, 50<<10) // of noise, so that they do not pack
	random := rand.New(rand.NewPCG(1, 2))
	for i := range lines {
		lines[i] = byte(random.Uint32())
	}
	large := func() (history.Source, error) {
		s, err := small()
		s.JSONLines = func(w io.Writer) error { _, err := w.Write(lines); return err }
		event := s.Events()[0]
		s.Events = func() (events []oplog.Event) {
			for i := range 2000 {
				event.Block.Generation, event.Block.Ptr = core.Generation(i+1), uint64(i+1)<<12
				events = append(events, event)
			}
			return events
		}
		return s, err
	}
	w := writer(t, dump.Config{Folder: dir, MaxBytes: 64 << 10, Source: large})
	paths, err := w.Now(t.Context(), dump.Request)
	if err == nil || !strings.Contains(err.Error(), "raise MaxBytes") {
		t.Errorf("the dump does not say that it is too large: %v", err)
	}
	var said []string
	for _, path := range paths {
		said = append(said, filepath.Base(path))
	}
	if got := list(t, dir); len(got) == 0 || !slices.Equal(got, said) {
		t.Errorf("the folder has %q, and it said %q", got, said)
	}
}

func TestAFolderThatIsLostFailsTheDumpAndIsSaid(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dumps")
	w := writer(t, dump.Config{Folder: dir})
	must.Do(t, os.RemoveAll(dir))
	must.Do(t, os.WriteFile(dir, nil, 0o600))
	if paths, err := w.Now(t.Context(), dump.Request); err == nil || len(paths) != 0 {
		t.Errorf("%v %v", paths, err)
	}
	if err := w.Close(t.Context()); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("Close says %v", err)
	}
	if n := counted(w, dump.Request, dump.Failed); n != 1 || w.Failures() != 1 {
		t.Errorf("%d failed", n)
	}
}

func TestASourceThatHasNothingFailsTheDump(t *testing.T) {
	none := errors.New("not open yet")
	w := writer(t, dump.Config{Folder: t.TempDir(), Source: func() (history.Source, error) { return history.Source{}, none }})
	expect.ErrorOf(w.Now(t.Context(), dump.Request))(t, none)
}

// The writer is busy with a source that takes its time: nobody who triggers
// waits for it, and who asks does so while its context lasts.
func TestNobodyWaitsForASlowSource(t *testing.T) {
	release := make(chan struct{})
	w := writer(t, dump.Config{Folder: t.TempDir(), Every: time.Nanosecond, Source: func() (history.Source, error) { <-release; return small() }})
	for range 1000 {
		w.Trigger(dump.Finding)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	expect.ErrorOf(w.Now(ctx, dump.Request))(t, context.Canceled)
	if err := w.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Close says %v", err)
	}
	close(release)
	expect.Success(t, w.Close(t.Context()))
	if written, limited := counted(w, dump.Finding, dump.Written), counted(w, dump.Finding, dump.Limited); written == 0 || limited < 900 || written+limited != 1000 {
		t.Errorf("%d written, %d limited", written, limited)
	}
}

func TestAClosedWriterRefuses(t *testing.T) {
	w := writer(t, dump.Config{Folder: t.TempDir()})
	for range 2 {
		must.Do(t, w.Close(t.Context()))
	}
	w.Trigger(dump.Finding)
	expect.ErrorOf(w.Now(t.Context(), dump.Request))(t, core.ErrClosed)
	if counted(w, dump.Finding, dump.Limited) != 1 {
		t.Error("the trigger is not counted")
	}
}

func TestBadConfigurationsAreRefusedByField(t *testing.T) {
	dir := t.TempDir()
	for field, cfg := range map[string]dump.Config{
		"Folder": {Source: small}, "Source": {Folder: dir}, "MaxFiles": {Folder: dir, Source: small, MaxFiles: 2},
		"MaxBytes": {Folder: dir, Source: small, MaxBytes: 1}, "Every": {Folder: dir, Source: small, Every: -1},
	} {
		_, err := dump.NewWriter(cfg)
		if e, ok := errors.AsType[*core.InvalidRequestError](err); !ok || e.Field != field {
			t.Errorf("%s: got %v", field, err)
		}
	}
}

// Whatever many do at once, each trigger comes to one outcome.
func TestEveryTriggerIsCountedOnce(t *testing.T) {
	w := writer(t, dump.Config{Folder: t.TempDir(), Every: time.Microsecond, MaxFiles: 9})
	const goroutines, each = 8, 50
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for i := range each {
				w.Trigger([]dump.Trigger{dump.Finding, dump.Refusals, dump.StickyError}[i%3])
				if i%10 == 0 {
					if _, err := w.Now(t.Context(), dump.Request); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
	expect.Success(t, w.Close(t.Context()))
	var sum uint64
	for _, c := range w.Stats() {
		sum += c.Count
	}
	if want := uint64(goroutines * (each + each/10)); sum != want || w.Failures() != 0 {
		t.Errorf("%d outcomes of %d triggers: %v", sum, want, w.Stats())
	}
}

func ExampleNewWriter() {
	dir, _ := os.MkdirTemp("", "dumps")
	defer os.RemoveAll(dir)
	w, err := dump.NewWriter(dump.Config{Folder: dir, Source: small})
	if err != nil {
		fmt.Println(err)
		return
	}
	w.Trigger(dump.Finding) // does not wait
	files, err := w.Now(context.Background(), dump.Request)
	fmt.Println(len(files), err, w.Close(context.Background()))
	// Output: 3 <nil> <nil>
}
