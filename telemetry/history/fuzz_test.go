package history_test

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
	"github.com/fencepost-gpu/fencepost/telemetry/history"
)

// eventsOf makes events of bytes, 8 of them each: any operation on few blocks,
// streams, addresses and launches, in any order.
func eventsOf(data []byte) (events []oplog.Event) {
	start := time.Unix(1_700_000_000, 0)
	for ; len(data) >= 8; data = data[8:] {
		n := binary.LittleEndian.Uint64(data)
		take := func(below uint64) uint64 { v := n % below; n /= below; return v }
		e := oplog.Event{Op: oplog.Op(1 + take(13)), Ordinal: int(take(2)), Stream: core.StreamID(take(3)), Tag: core.Tag([]string{"", "a", "\xff\""}[take(3)]),
			Bytes: 256 * take(8), Requested: 100 * take(8), Launch: []string{"", "sort"}[take(2)], LaunchID: take(5), Waits: 1,
			WaitedFor: [4]core.WaitRef{{Launch: take(5)}, {Block: core.Generation(take(8))}},
			Time:      start.Add(time.Duration(take(1 << 12))), Duration: time.Duration(take(1 << 10)), Relieved: take(2) == 0}
		e.Block = core.BlockID{Ptr: 256 * take(16), Generation: core.Generation(take(8)), AllocStream: e.Stream, Ordinal: e.Ordinal}
		if take(5) == 0 {
			e.Err = core.ErrOutOfMemory
		}
		if e.Op == oplog.OpDevice {
			w := oplog.DeviceWork{Launch: e.LaunchID, Name: e.Launch, Stream: e.Stream, Began: e.Time, Ended: e.Time.Add(e.Duration),
				Reached: e.Time.Add(-time.Duration(e.Bytes)), Waits: []oplog.DeviceWait{{For: e.WaitedFor[0], Held: time.Duration(e.Requested)}, {For: e.WaitedFor[1], Held: -1}}}
			e = w.Event(e.Ordinal)
		}
		events = append(events, e)
	}
	return events
}

// Whatever a history says, its trace keeps the rules, and its snapshot is
// written.
func FuzzExport(f *testing.F) {
	f.Add([]byte{})
	seed := make([]byte, 0, 8*64)
	for i := range uint64(64) {
		seed = binary.LittleEndian.AppendUint64(seed, i*0x9E3779B97F4A7C15)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1024 {
			return
		}
		source := history.Source{Events: func() []oplog.Event { return eventsOf(data) }}
		readTrace(t, export(t, source, history.Perfetto))
		export(t, source, history.PyTorch)
	})
}

// extreme are lines whose numbers are as large as they may be, and texts that no
// terminal should get.
var extreme = strings.Join([]string{
	`{"op":"allocate","time":"9999-12-31T23:59:59Z","mono_ns":9223372036854775807,"duration_ns":9223372036854775807,"stream":18446744073709551615,"generation":18446744073709551615,"ptr":"0x3fffffffffffffff","requested":4611686018427387903,"bytes":4611686018427387903,"device":15,"tag":"\u001b\u009b\u202e\u007f"}`,
	`{"op":"allocate","time":"0001-01-01T00:00:00Z","mono_ns":0,"stream":0,"generation":1,"ptr":"0x0","requested":4611686018427387903,"bytes":0}`,
	`{"op":"allocate","time":"2026-01-01T00:00:00Z","mono_ns":1,"stream":0,"requested":18446744073709551615,"bytes":18446744073709551615,"error":"no","kind":"out_of_memory"}`,
	`{"op":"refusal","time":"2026-01-01T00:00:00Z","mono_ns":1,"stream":0,"generation":3,"ptr":"0xffffffffffffffff","requested":18446744073709551615,"error":"no","kind":"out_of_budget"}`,
	`{"op":"prepare","time":"2026-01-01T00:00:00Z","mono_ns":1,"stream":1,"launch_id":18446744073709551615,"launch":"\u001b","uses":9223372036854775807,"waits":9223372036854775807,"waited_launches":[18446744073709551615],"ptr":"0xffffffffffffffff","generation":1}`,
	`{"op":"finish","time":"2026-01-01T00:00:00Z","mono_ns":9223372036854775807,"duration_ns":9223372036854775807,"stream":1,"launch_id":18446744073709551615,"launch":"\u001b"}`,
	`{"op":"device","time":"0001-01-01T00:00:00Z","mono_ns":1,"duration_ns":9223372036854775807,"stream":2,"launch_id":7,"launch":"\u009b","trace_id":"ffffffffffffffffffffffffffffffff","span_id":"ffffffffffffffff","timed":{"prepared_ns":-31536000000000000,"reached_ns":31536000000000000,"bound_ns":31536000000000000,"weight":18446744073709551615,"unattributed_ns":31536000000000000,"waits":[{"stream":1,"launch_id":7,"launch":"\u001b","tag":"\u202e","held_ns":31536000000000000},{"stream":18446744073709551615,"generation":18446744073709551615,"block":18446744073709551615,"held_ns":-9223372036854775808}]}}`,
	`{"op":"release","time":"2026-01-01T00:00:00Z","mono_ns":1,"stream":0,"generation":1,"ptr":"0x3fffffffffffffff","bytes":4611686018427387903}`,
}, "\n") + "\n"

// Whatever a log says that can be read, it has a trace that keeps the rules and
// prints, and a snapshot.
func FuzzExportOfALog(f *testing.F) {
	f.Add([]byte(extreme))
	if events, err := alloctrace.ReadEvents("f", strings.NewReader(extreme)); err != nil || len(events) != strings.Count(extreme, "\n") {
		f.Fatalf("%d events, %v", len(events), err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<14 {
			return
		}
		events, err := alloctrace.ReadEvents("f", bytes.NewReader(data))
		if err != nil {
			return
		}
		source := history.Source{Events: func() []oplog.Event { return events }}
		text := export(t, source, history.Perfetto)
		readTrace(t, text)
		for _, r := range string(text) {
			if r != '\n' && !unicode.IsPrint(r) {
				t.Errorf("the trace has %q", r)
			}
		}
		export(t, source, history.PyTorch)
	})
}

func TestRandomHistoriesMakeSnapshotsThatFitTogether(t *testing.T) {
	for seed := range uint64(12) {
		data := make([]byte, 0, 8*300)
		for i := range uint64(300) {
			data = binary.LittleEndian.AppendUint64(data, (i+1)*(seed*2+1)*0x9E3779B97F4A7C15^i<<17)
		}
		source := history.Source{Events: func() []oplog.Event { return eventsOf(data) }}
		if report := checkSnapshot(t, export(t, source, history.PyTorch)); len(report.Broken) > 0 {
			t.Errorf("seed %d: %q", seed, report.Broken)
		}
	}
}
