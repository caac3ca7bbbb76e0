package incident_test

import (
	"bytes"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/names"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry/incident"
)

var update = flag.Bool("update", false, "write the golden files anew")

// texts are of any bytes, as tags and errors of callers are.
func texts(t *rapid.T, label string) string {
	return string(rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, label))
}

func times(t *rapid.T, label string) time.Time {
	if rapid.Bool().Draw(t, label+" is zero") {
		return time.Time{}
	}
	return time.Unix(rapid.Int64Range(-1<<40, 1<<40).Draw(t, label), rapid.Int64Range(0, 999_999_999).Draw(t, label+" ns")).In(time.FixedZone("odd", 4711))
}

func useRecords(t *rapid.T, label string) []core.UseRecord {
	var uses []core.UseRecord
	for range rapid.IntRange(0, 3).Draw(t, label) {
		u := core.UseRecord{LaunchID: rapid.Uint64().Draw(t, "launch"), Launch: texts(t, "name"), Stream: core.StreamID(rapid.Uint64().Draw(t, "stream")),
			Access: core.Access(rapid.Byte().Draw(t, "access")), Time: times(t, "used"), Tags: [4]core.Tag{core.Tag(texts(t, "tag")), "", core.Tag(texts(t, "tag"))}}
		u.Span.TraceID[3], u.Span.SpanID[7] = rapid.Byte().Draw(t, "trace"), rapid.Byte().Draw(t, "span")
		uses = append(uses, u)
	}
	return uses
}

func findings(t *rapid.T) core.Finding {
	f := core.Finding{
		Kind: core.FindingKind("k" + texts(t, "kind")), Source: texts(t, "source"), Text: texts(t, "text"), Time: times(t, "time"),
		Victim: core.Block{ID: core.BlockID{Ptr: rapid.Uint64().Draw(t, "ptr"), Generation: core.Generation(rapid.Uint64().Draw(t, "generation")),
			AllocStream: core.StreamID(rapid.Uint64().Draw(t, "stream")), Ordinal: rapid.IntRange(0, 15).Draw(t, "device")},
			Tag: core.Tag(texts(t, "tag")), Requested: rapid.Uint64().Draw(t, "requested"), Bytes: rapid.Uint64().Draw(t, "bytes"), State: core.BlockState(rapid.IntRange(0, 5).Draw(t, "state"))},
		Offset: rapid.Int64().Draw(t, "offset"), BadBytes: rapid.Uint64().Draw(t, "bad"), Expected: rapid.Byte().Draw(t, "expected"), Seen: rapid.Byte().Draw(t, "seen"),
		Uses: useRecords(t, "uses"), OlderUses: rapid.Uint64().Draw(t, "older"), Suspects: useRecords(t, "suspects"),
	}
	if rapid.Bool().Draw(t, "with stacks") {
		f.AllocStack, f.FreeStack = core.CaptureStack(0), core.CaptureStack(1)
	}
	if rapid.Bool().Draw(t, "with an error") {
		f.Err = errors.Join(core.ErrStreamMisuse, errors.New(texts(t, "error")))
	}
	return f
}

func TestWhatIsWrittenIsWhatIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := &incident.Incident{Schema: incident.Schema, Number: rapid.Uint64().Draw(t, "number"), Finding: incident.FromFinding(findings(t)),
			Repeats: incident.Repeats{Omitted: rapid.Uint64().Draw(t, "omitted")},
			Surroundings: incident.Surroundings{Stack: "s", Guard: incident.Guard{Mode: "hunt", HuntTags: []string{"a"}, Numbers: map[string]uint64{"verified": math.MaxUint64}},
				Memory:  incident.FromStats(core.Stats{Live: core.Amount{Bytes: rapid.Uint64().Draw(t, "live")}}),
				History: []incident.Event{incident.FromEvent(oplog.Event{Op: oplog.OpPrepare, Time: times(t, "event"), Launch: texts(t, "launch"), Err: core.ErrDriver, Access: core.Read})}}}
		text, err := in.Encode()
		must.Do(t, err)
		back, err := incident.Read(bytes.NewReader(text))
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if diff := cmp.Diff(in, back); diff != "" {
			t.Fatalf("came back otherwise (-written +read):\n%s", diff)
		}
		if in.String() == "" {
			t.Fatal("it prints as nothing")
		}
	})
}

// golden is an incident in which no two fields are alike.
func golden() *incident.Incident {
	at := time.Date(2026, 11, 22, 3, 45, 0, 123456789, time.UTC)
	span := core.SpanRef{TraceID: [16]byte{0x4b, 0xf9, 15: 1}, SpanID: [8]byte{0xab, 7: 2}}
	victim := core.Block{ID: core.BlockID{Ptr: 0x7f0000012300, Generation: 13086, AllocStream: 3}, Tag: "sort.keys", Requested: 1000, Bytes: 1024, Align: 256, State: core.Quarantined}
	in := &incident.Incident{Schema: incident.Schema, Number: 42, Repeats: incident.Repeats{Since: at.Add(-time.Minute), Omitted: 17},
		Process: incident.Process{PID: 4711, Program: "service", Go: "go1.26.0", Fencepost: "v0.3.0"},
		Finding: incident.FromFinding(core.Finding{
			Kind: names.FindingUseAfterFreeWrite, Source: "debugguard", Time: at, Text: "the block was written after it was freed", Victim: victim,
			Offset: 996, BadBytes: 4, Expected: 0xff, Seen: 0x2a,
			Uses: []core.UseRecord{{LaunchID: 7, Launch: "radix", Stream: 3, Access: core.ReadWrite, Span: span, Time: at.Add(-2 * time.Second)}}, OlderUses: 12,
			Suspects: []core.UseRecord{{LaunchID: 9, Launch: "join", Stream: 4, Tags: [4]core.Tag{"join.table", "join.out"}, Time: at.Add(-time.Second)}},
			Err:      &core.UseAfterFreeError{Op: "guard check", Generation: 13086, State: core.Quarantined, Tag: "sort.keys"},
		}),
		Surroundings: incident.Surroundings{
			Device: incident.Device{Kind: "sim", Ordinal: 1, Name: "Fencepost simulated GPU", UUID: "GPU-00000000-0000-0000-0001-a1b2c3d4e5f6", PCIBusID: "e5f6:01:00.0"},
			Stack:  "telemetry(debugguard(async(sim:1)))",
			Guard:  incident.Guard{Mode: "sample", Policy: "report", HuntTags: []string{"sort.keys"}, Numbers: map[string]uint64{"guarded": 5, "verified": 4}},
			Memory: incident.FromStats(core.Stats{Live: core.Amount{Bytes: 100}, Pending: core.Amount{Bytes: 20}, Quarantined: core.Amount{Bytes: 3}, Limit: 1000, Launches: 9,
				Reserved: 500, Cached: 377, OwnPool: core.OwnPoolStats{Present: true, Fragmented: 30, Limit: 600}}),
			History: []incident.Event{
				incident.FromEvent(oplog.Event{Op: oplog.OpDeallocate, Layer: "logging", Time: at.Add(-90 * time.Second), Duration: 700, Ordinal: 1, Stream: 3, Block: victim.ID, Tag: "sort.keys", Requested: 1000, Bytes: 1024}),
				incident.FromEvent(oplog.Event{Op: oplog.OpPrepare, Layer: "logging", Time: at.Add(-time.Second), Duration: 900, Ordinal: 1, Stream: 4, Launch: "join", Access: core.Write, Uses: 2, Waits: 1, Err: core.ErrClosed}),
			},
		}}
	in.Finding.AllocStack = []string{"main.load example.go:12", "main.main example.go:3"}
	in.Finding.FreeStack = []string{"main.drop example.go:30"}
	return in
}

// The written form is a promise: a change of it shows in these files, and a
// field that is renamed or dropped needs a new version.
func TestGoldenFormAndText(t *testing.T) {
	text := must.Get(golden().Encode())(t)
	for name, got := range map[string]string{"incident.json": string(text), "incident.txt": golden().String()} {
		path := filepath.Join("testdata", name)
		if *update {
			must.Do(t, os.WriteFile(path, []byte(got), 0o600))
		}
		want := must.Get(os.ReadFile(path))(t)
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s differs (-want +got):\n%s", name, diff)
		}
	}
}

func TestFilesOfVersionOneAreReadForGood(t *testing.T) {
	in := must.Get(incident.ReadFile("testdata/incident.json"))(t)
	if diff := cmp.Diff(golden(), in); diff != "" {
		t.Error(diff)
	}
}

func TestWhatIsNoIncidentIsRefusedWithTheReason(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "JSON",
		"[]":                        "JSON",
		`{"a":1}`:                   "schema: missing",
		`{"schema":2,"finding":[]}`: "version 2",
		`{"schema":1}`:              "finding.kind",
		`{"schema":1,"finding":7}`:  "JSON",
		`{"schema":1} {"schema":1}`: "JSON",
		`{"schema":1,"number":-1}`:  "JSON",
		strings.Repeat(" ", 5<<20):  "more than",
		withField("ptr", `"1000"`):  "0x in front",
		withField("ptr", `"0xzz"`):  "no hexadecimal number of 64",
	} {
		_, err := incident.Read(strings.NewReader(text))
		if !errors.Is(err, core.ErrInvalidRequest) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
	expect.ErrorOf(incident.ReadFile("testdata/nothing.json"))(t, os.ErrNotExist, "a file that is not there")
	if in, err := incident.Read(strings.NewReader(`{"schema":1,"finding":{"kind":"leak","new":1},"newer":{}}`)); err != nil || in.Finding.Kind != "leak" {
		t.Errorf("fields of a later minor form: %v, %v", in, err)
	}
}

func withField(name, value string) string {
	return `{"schema":1,"finding":{"kind":"leak","victim":{"` + name + `":` + value + `}}}`
}

func TestLongTextIsCutAtACharacter(t *testing.T) {
	f := incident.FromFinding(core.Finding{Kind: "leak", Text: "x" + strings.Repeat("\u00e9", 5000)})
	if len(f.Text) > 4100 || !strings.HasSuffix(f.Text, "\u00e9...") {
		t.Errorf("%d bytes, ending in %q", len(f.Text), f.Text[len(f.Text)-8:])
	}
}

func FuzzWhatDecodesIsWrittenAndReadAgain(f *testing.F) {
	text, _ := golden().Encode()
	f.Add(text)
	f.Add([]byte(`{"schema":1,"finding":{"kind":"leak","time":"0000-01-01T00:00:00+23:59"}}`))
	f.Add([]byte(`{"schema":1,"finding":{"kind":"leak","damage":{"seen":"0xff"}},"guard":{"hunt_tags":[]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		in, err := incident.Read(bytes.NewReader(text))
		if err != nil {
			return
		}
		_ = in.String()
		again, err := in.Encode()
		if err != nil {
			return // a time that JSON reads and does not write
		}
		if _, err := incident.Read(bytes.NewReader(again)); err != nil {
			t.Errorf("%v\n%s", err, again)
		}
	})
}

// An incident may be anybody's: what a terminal would obey is seen instead, and
// no line is the text's own.
func TestAnIncidentOfAStrangerPrintsNothingRaw(t *testing.T) {
	const hostile = "\x1b[2J\x07\r\nforged\u009b\u202e\x7f\xff"
	use := incident.Use{LaunchID: 1, Launch: hostile, Access: hostile, Tags: []string{hostile}}
	event := incident.Event{Op: hostile, Generation: 1, Tag: hostile, Launch: hostile, Access: hostile, Error: &incident.Failure{Text: hostile}}
	in := &incident.Incident{Finding: incident.Finding{Kind: hostile, Source: hostile, Text: hostile, Victim: &incident.Block{Tag: hostile, State: hostile, Generation: 1},
		AllocStack: []string{hostile}, FreeStack: []string{hostile}, Uses: []incident.Use{use}, Suspects: []incident.Use{use}, Error: &incident.Failure{Text: hostile, Classes: []string{hostile}}},
		Process: incident.Process{Program: hostile, Go: hostile, Fencepost: hostile}}
	in.Surroundings = incident.Surroundings{Device: incident.Device{Kind: hostile, Name: hostile, UUID: hostile, PCIBusID: hostile}, Stack: hostile, History: []incident.Event{event},
		Guard: incident.Guard{Mode: hostile, Policy: hostile, HuntTags: []string{hostile}, Numbers: map[string]uint64{hostile: 1}}}
	incomplete := *in
	incomplete.Incomplete = hostile
	for name, text := range map[string]string{"incident": in.String(), "incomplete": incomplete.String(), "use": use.String(), "event": event.String()} {
		for _, c := range text {
			if c != '\n' && !unicode.IsPrint(c) || c == utf8.RuneError {
				t.Fatalf("%s: it prints %q:\n%q", name, c, text)
			}
		}
		if strings.Contains(text, "\nforged") || !strings.Contains(text, `\x1b[2J`) {
			t.Errorf("%s: it prints\n%s", name, text)
		}
	}
}
