package logging

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/refuse"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// goldenRecords is one of each operation, with the odd ones: failures, texts
// that need escapes, a relieved refusal, a start before the sink's.
func goldenRecords() []Record {
	at := testStart.Add
	block := core.BlockID{Ptr: 0x7f00_0000_1000, Generation: 41, AllocStream: 7, Ordinal: 1}
	oom := &core.DriverError{Op: "cuMemAllocAsync", Code: 2, Name: "CUDA_ERROR_OUT_OF_MEMORY", Text: "out of memory", OutOfMemory: true}
	span := core.SpanRef{TraceID: [16]byte{0x4b, 0xf9, 15: 0x36}, SpanID: [8]byte{0x00, 0xf0, 7: 0xb7}}
	events := []oplog.Event{
		{Op: oplog.OpAllocate, Layer: "logging", Time: at(4 * time.Microsecond), Duration: 575, Ordinal: 1, Stream: 7, Block: block, Tag: "sort.keys", Requested: 1000, Bytes: 1512},
		{Op: oplog.OpAllocate, Layer: "logging", Time: at(time.Second), Duration: 1200, Ordinal: 1, Stream: 12, Tag: names.Untagged, Requested: 1 << 40, Bytes: 1 << 40, Err: oom},
		{Op: oplog.OpRefusal, Layer: "budget", Time: at(2 * time.Second), Duration: 90, Ordinal: 1, Stream: 7, Tag: "join", Requested: 64, Bytes: 64, Relieved: true, Span: span,
			Err: &core.OutOfBudgetError{Requested: 64, Limit: 32, Remaining: 2, Live: 30, Tag: "join"}},
		{Op: oplog.OpRefusal, Layer: "debugguard", Time: at(2 * time.Second), Ordinal: 1, Tag: "join", Requested: 64, Bytes: 64, Span: span, Alone: true,
			Err: &core.OutOfBudgetError{Requested: 64, Limit: 32, Tag: "join"}},
		{Op: oplog.OpPrepare, Layer: "logging", Time: at(3 * time.Second), Duration: 300, Ordinal: 1, Stream: 8, Block: block, Tag: "sort.keys",
			Requested: 1000, Bytes: 1512, Launch: "merge \"left\"\n", Access: core.ReadWrite, Uses: 2, Waits: 1, Elided: 3},
		{Op: oplog.OpFinish, Layer: "logging", Time: at(3 * time.Second), Duration: 280, Ordinal: 1, Err: &core.StreamMisuseError{Op: "FinishUse", Reason: "the ticket is empty"}},
		{Op: oplog.OpDeallocate, Layer: "logging", Time: at(time.Minute), Duration: 665, Ordinal: 1, Stream: 7, Block: block, Tag: "sort.keys", Requested: 1000, Bytes: 1512},
		{Op: oplog.OpDeallocate, Layer: "logging", Time: at(time.Minute), Duration: 20, Ordinal: 1, Stream: 7, Block: block,
			Err: &core.UseAfterFreeError{Op: "Deallocate", Generation: 41, State: core.Retired, Tag: "sort.keys"}},
		{Op: oplog.OpReap, Layer: "logging", Time: at(25*time.Hour + 1234567*time.Microsecond), Duration: 10, Ordinal: 1},
		{Op: oplog.OpRelease, Layer: "logging", Time: at(25 * time.Hour), Ordinal: 1, Stream: 7, Block: block, Tag: "größe", Requested: 1000, Bytes: 1512},
		{Op: oplog.OpAllocate, Layer: "logging", Time: at(-time.Second), Duration: 5, Ordinal: 1, Block: block, Tag: "early", Requested: 1, Bytes: 256},
		{Op: oplog.OpAllocate, Layer: "logging", Time: at(123*time.Hour + 59*time.Minute + 58*time.Second + 999999*time.Microsecond), Ordinal: 1, Block: block, Tag: "late", Requested: 1, Bytes: 256},
	}
	records := make([]Record, len(events))
	for i, e := range events {
		records[i] = Record{Event: e, Seq: uint64(i + 1)}
	}
	return records
}

func TestGolden(t *testing.T) {
	for name, open := range map[string]func(w io.Writer) output{
		"records.jsonl": func(w io.Writer) output { return newJSONLines(w, testStart) },
		"records.csv":   func(w io.Writer) output { return newCSVLines(w, testStart) },
		"records.txt": func(w io.Writer) output {
			return &slogRecords{handler: slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug})}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var buf bytes.Buffer
			s := newAsync(open(&buf), Queue{})
			for _, r := range goldenRecords() {
				s.Put(r)
			}
			if err := s.Close(soon(t)); err != nil || s.Dropped() != 0 {
				t.Fatalf("close: %v, dropped %d", err, s.Dropped())
			}
			compare(t, filepath.Join("testdata", name), buf.Bytes())
		})
	}
}

func compare(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		must.Do(t, os.WriteFile(path, got, 0o644))
	}
	want := must.Get(os.ReadFile(path))(t)
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (rewrite it with -update):\n%s", path, got)
	}
}

func TestJSONLinesAreJSON(t *testing.T) {
	j := newJSONLines(io.Discard, testStart)
	for _, r := range goldenRecords() {
		var got map[string]any
		if err := json.Unmarshal(j.appendLine(nil, &r), &got); err != nil {
			t.Fatalf("record %d: %v", r.Seq, err)
		}
		_, hasPtr := got["ptr"]
		_, hasError := got["error"]
		if hasPtr != (r.Event.Block.Generation != 0) || hasError != (r.Event.Err != nil) {
			t.Errorf("record %d: %v", r.Seq, got)
		}
		if launch, ok := got["launch"]; ok && launch != r.Event.Launch {
			t.Errorf("launch %q came back as %q", r.Event.Launch, launch)
		}
	}
}

func TestAnyTextSurvivesJSON(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "plain": "plain", `a"b\c/d`: `a"b\c/d`, "\x00\t\r\n\x1f\x7f": "\x00\t\r\n\x1f\x7f",
		"größe \u2028 <&> 🙂": "größe \u2028 <&> 🙂", "a\xff\xc3": "a\ufffd\ufffd",
	} {
		var got map[string]string
		if err := json.Unmarshal(append(appendText([]byte(`{"k":`), text), '}'), &got); err != nil || got["k"] != want {
			t.Errorf("%q came back as %q, %v", text, got["k"], err)
		}
	}
}

func TestSlogTakesOnlyWhatTheLoggerLogs(t *testing.T) {
	var buf bytes.Buffer
	s := NewSlogSink(slog.New(slog.NewTextHandler(&buf, &slog.HandlerOptions{Level: slog.LevelWarn})), Queue{})
	for _, r := range goldenRecords() {
		s.Put(r)
	}
	s.Put(Record{Event: oplog.Event{Op: oplog.OpRefusal}})
	must.Do(t, s.Close(soon(t)))
	got := buf.String()
	if strings.Count(got, "level=ERROR") != 3 || strings.Count(got, "level=WARN") != 2 || strings.Count(got, "\n") != 5 {
		t.Errorf("got\n%s", got)
	}
}

// badHandler fails every other record.
type badHandler struct {
	slog.Handler
	n int
}

func (h *badHandler) Handle(c context.Context, r slog.Record) error {
	if h.n++; h.n%2 == 0 {
		return errBad
	}
	return h.Handler.Handle(c, r)
}

func TestAFailingSlogHandlerIsCounted(t *testing.T) {
	h := &badHandler{Handler: slog.NewTextHandler(new(bytes.Buffer), nil)}
	s := NewSlogSink(slog.New(h), Queue{OnError: func(error) {}})
	for range 4 {
		s.Put(Record{Event: oplog.Event{Op: oplog.OpReap}})
	}
	if err := s.Close(soon(t)); !errors.Is(err, errBad) || s.Dropped() != 2 {
		t.Errorf("close: %v, dropped %d", err, s.Dropped())
	}
}

func TestErrorTextIsBoundedAndValid(t *testing.T) {
	for _, c := range []struct {
		text   string
		length int
	}{
		{strings.Repeat("a", 256), 256},
		{strings.Repeat("a", 257), 256},
		{strings.Repeat("é", 200), 255}, // 253 would split the last é
		{"a\xffb", 5},
	} {
		got := errorText(errors.New(c.text))
		if len(got) != c.length || !utf8.ValidString(got) {
			t.Errorf("%q: %d bytes: %q", c.text, len(got), got)
		}
		if cut := len(c.text) > 256; cut != strings.HasSuffix(got, "…") {
			t.Errorf("%q ends without an ellipsis, or with a needless one", got)
		}
	}
}

func TestErrorKinds(t *testing.T) {
	for want, err := range map[string]error{
		"out_of_budget":     &core.OutOfBudgetError{},
		"claim_exceeded":    &core.OutOfBudgetError{Claim: 1},
		"out_of_memory":     &core.DriverError{OutOfMemory: true},
		"driver":            &core.DriverError{},
		"stream_misuse":     refuse.Unsupported("a", "b", "c"),
		"use_after_free":    &core.UseAfterFreeError{},
		"out_of_bounds":     &core.OutOfBoundsError{},
		"invalid_request":   fmt.Errorf("wrapped: %w", &core.InvalidRequestError{}),
		"closed":            core.ErrClosed,
		"canceled":          context.Canceled,
		"deadline_exceeded": context.DeadlineExceeded,
		"other":             errBad,
	} {
		if got := errorKind(err); got != want {
			t.Errorf("%v is %q, want %q", err, got, want)
		}
	}
}
