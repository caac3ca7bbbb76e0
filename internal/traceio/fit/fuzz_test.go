package fit_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
	"github.com/fencepost-gpu/fencepost/internal/traceio/fit"
)

// Whatever a file says, fit gives an answer or an error, and what it says is needed is enough.
func FuzzAnyHistoryHasAnAnswer(f *testing.F) {
	l := &jobLog{generation: 10}
	l.block("allocate", 0, 1, "weights", 10*mib, 1)
	l.job(5, 100, 20, 3*mib)
	f.Add(strings.Join(l.lines, "\n"), uint64(1<<24), 0)
	f.Add(strings.Join(l.lines, "\n"), uint64(1<<24), 1)
	f.Add(`{"op":"allocate","mono_ns":9223372036854775807,"stream":1,"generation":1,"requested":1,"bytes":1099511627776}
{"op":"deallocate","mono_ns":1,"stream":1,"generation":7,"requested":18446744073709551615}`, uint64(1<<22), 0)
	f.Add(`{"op":"job","mono_ns":4611686018427387903,"duration_ns":31536000000000000,"stream":1,"bytes":4398046511104,"job":{"waited_for_memory_ns":5}}
{"op":"allocate","mono_ns":4643222018427387903,"stream":1,"generation":1,"bytes":4096}
{"op":"deallocate","mono_ns":9223372036854775807,"stream":2,"generation":1}`, uint64(0), 1)
	f.Add("Thread,Time,Action,Pointer,Size,Stream\n1,00:00:00:000001,free,0x100,64,0\n1,00:00:00:000001,allocate,0x100,64,0\n1,00:00:00:000000,allocate,0x100,64,0x2\n", uint64(1<<21), 0)
	f.Fuzz(func(t *testing.T, text string, memory uint64, jobs int) {
		trace, err := alloctrace.Limits{Rows: 100, Bytes: 1 << 16}.Read("log", strings.NewReader(text))
		if err != nil {
			return
		}
		m := fit.Machine{Memory: memory % (1 << 34), Jobs: max(0, jobs), Device: -1}
		r, err := fit.Predict(t.Context(), trace, m)
		if errors.Is(err, core.ErrInvalidRequest) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if r.SVG(); r.Bars(60) == "" || r.Verdict() == "" || r.Fits != (r.Margin >= 0 || m.Memory == 0) {
			t.Errorf("%+v", r)
		}
		m.Memory = r.Needs
		if enough, err := fit.Predict(t.Context(), trace, m); err != nil || !enough.Fits {
			t.Errorf("%v: %d bytes are not enough: %+v", err, r.Needs, enough)
		}
	})
}
