package incident

import (
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/version"
)

// thisProcess is the process that runs; it does not change.
var thisProcess = sync.OnceValue(func() Process {
	p := Process{PID: os.Getpid(), Program: "unknown", Go: runtime.Version(), Fencepost: version.Fencepost()}
	if len(os.Args) > 0 {
		p.Program = clean(filepath.Base(os.Args[0]))
	}
	return p
})

// FromFinding is the written form of f. Text that is not UTF-8 is repaired, and
// a time that RFC 3339 cannot write is left out.
func FromFinding(f core.Finding) Finding {
	w := Finding{
		Kind: clean(string(f.Kind)), Source: clean(f.Source), Text: clean(f.Text), Time: instant(f.Time), Unproven: f.Unproven,
		Allocated: instant(f.Allocated), Freed: instant(f.Freed),
		AllocStack: f.AllocStack.Lines(), FreeStack: f.FreeStack.Lines(), CallStack: f.CallStack.Lines(),
		Uses: fromUses(f.Uses), OlderUses: f.OlderUses, Suspects: fromUses(f.Suspects), MoreSuspects: f.MoreSuspects, Unranked: f.Unranked,
		Trace: f.Span.Extent(f.Alone), Error: fromError(f.Err),
	}
	w.TraceID, w.SpanID = spanIDs(f.Span)
	if f.Victim.ID.Generation != 0 || f.Victim.ID.Ptr != 0 {
		w.Victim = fromBlock(f.Victim)
	}
	if f.BadBytes != 0 {
		w.Damage = &Damage{Offset: f.Offset, Bytes: f.BadBytes, Expected: Byte(f.Expected), Seen: Byte(f.Seen)}
	}
	return w
}

func fromBlock(b core.Block) *Block {
	w := &Block{Tag: clean(string(b.Tag)), Generation: uint64(b.ID.Generation), Ptr: Address(b.ID.Ptr), Requested: b.Requested,
		Bytes: b.Bytes, Align: b.Align, Stream: uint64(b.ID.AllocStream), Device: b.ID.Ordinal}
	if b.State != 0 {
		w.State = b.State.String()
	}
	return w
}

func fromUses(uses []core.UseRecord) []Use {
	var all []Use
	for _, u := range uses {
		w := Use{LaunchID: u.LaunchID, Launch: clean(u.Launch), Stream: uint64(u.Stream), Access: accessText(u.Access), Time: instant(u.Time)}
		w.TraceID, w.SpanID = spanIDs(u.Span)
		for _, tag := range u.Tags {
			if tag != "" {
				w.Tags = append(w.Tags, clean(string(tag)))
			}
		}
		all = append(all, w)
	}
	return all
}

// FromEvent is the written form of a log record.
func FromEvent(e oplog.Event) Event {
	return Event{
		Time: instant(e.Time), DurationNS: int64(e.Duration), Op: e.Op.String(), Layer: clean(e.Layer), Device: e.Ordinal,
		Stream: uint64(e.Stream), Ptr: Address(e.Block.Ptr), Generation: uint64(e.Block.Generation), Tag: clean(string(e.Tag)),
		Requested: e.Requested, Bytes: e.Bytes, Launch: clean(e.Launch), Access: accessText(e.Access),
		Uses: e.Uses, Waits: e.Waits, Elided: e.Elided, Relieved: e.Relieved, Error: fromError(e.Err),
	}
}

// FromStats is the written form of the memory's numbers.
func FromStats(s core.Stats) Memory {
	return Memory{
		Live: s.Live.Bytes, Pending: s.Pending.Bytes, Quarantined: s.Quarantined.Bytes, Peak: s.PeakBytes,
		Limit: s.Limit, Charged: s.Charged, Reserved: s.Reserved, Cached: s.Cached, Fragmented: s.OwnPool.Fragmented, PoolLimit: s.OwnPool.Limit,
		Allocations: s.Allocations, Deallocations: s.Deallocations, Launches: s.Launches, Failures: s.Failures, Refusals: s.Refusals,
		OpenIntents: s.OpenIntents, Poisoned: s.Poisoned,
	}
}

// classes are the sentinels of package core with their names here.
var classes = []struct {
	name string
	is   error
}{
	{"out_of_budget", core.ErrOutOfBudget},
	{"claim_exceeded", core.ErrClaimExceeded},
	{"out_of_memory", core.ErrOutOfMemory},
	{"driver_error", core.ErrDriver},
	{"sticky", core.ErrSticky},
	{"use_after_free", core.ErrUseAfterFree},
	{"out_of_bounds", core.ErrOutOfBounds},
	{"stream_misuse", core.ErrStreamMisuse},
	{"invalid_request", core.ErrInvalidRequest},
	{"closed", core.ErrClosed},
	{"unsupported", errors.ErrUnsupported},
}

func fromError(err error) *Failure {
	if err == nil {
		return nil
	}
	f := &Failure{Text: clean(err.Error())}
	for _, c := range classes {
		if errors.Is(err, c.is) {
			f.Classes = append(f.Classes, c.name)
		}
	}
	return f
}

// spanIDs name an exported span; both are empty if there is none.
func spanIDs(span core.SpanRef) (traceID, spanID string) {
	if span.IsZero() {
		return "", ""
	}
	return hex.EncodeToString(span.TraceID[:]), hex.EncodeToString(span.SpanID[:])
}

func accessText(a core.Access) string {
	if a == 0 {
		return ""
	}
	return a.String()
}

// maxText is how many bytes of a text are kept: names and errors are a
// caller's, and a file has a limit.
const maxText = 4096

// clean makes text that comes back as it was written.
func clean(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "") + "..."
}

// instant is t without its monotonic reading, or zero if it cannot be written.
func instant(t time.Time) time.Time {
	t = t.Round(0).UTC()
	if t.IsZero() || t.Year() < 0 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}
