package incident

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/internal/size"
	"github.com/fencepost-gpu/fencepost/internal/terminal"
)

// String is the incident for people, on several lines: the bug, its victim, the
// suspects, the stacks, the uses and what was done around it. What does not print
// in its texts, line ends among it, is escaped: an incident may come from a stranger.
func (in *Incident) String() string {
	p := &printer{}
	f := &in.Finding
	p.line("%s: %s", f.Kind, f.Text)
	p.line("  seen       %s by %s, incident %d of process %d (%s)", stamp(f.Time), f.Source, in.Number, in.Process.PID, in.Process.Program)
	if r := in.Repeats; r.Omitted > 0 {
		p.line("  repeats    %d like it were left out since %s", r.Omitted, stamp(r.Since))
	}
	at := "at an unknown address"
	if v := f.Victim; v == nil {
		p.line("  victim     unknown")
	} else {
		p.line("  victim     tag %q generation #%d, %d bytes at %v, %s, of stream %s", v.Tag, v.Generation, v.Requested, v.Ptr, v.State, core.StreamID(v.Stream))
		if f.Damage != nil {
			at = (v.Ptr + Address(f.Damage.Offset)).String()
		}
	}
	if !f.Allocated.IsZero() {
		p.line("  allocated  %s", stamp(f.Allocated))
	}
	if !f.Freed.IsZero() {
		p.line("  freed      %s", stamp(f.Freed))
	}
	if d := f.Damage; d != nil {
		p.line("  damage     %d bytes, the first at offset %d (%v): %v expected, %v seen", d.Bytes, d.Offset, at, d.Expected, d.Seen)
	}
	if e := f.Error; e != nil {
		p.line("  error      %s [%s]", e.Text, strings.Join(e.Classes, ", "))
	}
	if f.SpanID != "" {
		p.line("  trace      %s (%s), span %s", f.TraceID, f.Trace, f.SpanID)
	}
	list(p, f.suspicion(), f.Suspects)
	list(p, "last uses, newest first", f.Uses)
	if f.OlderUses > 0 {
		p.line("  and %d older uses that are forgotten", f.OlderUses)
	}
	list(p, "allocated at", f.AllocStack)
	list(p, "freed at", f.FreeStack)
	list(p, "called at", f.CallStack)
	p.around(&in.Surroundings)
	if len(in.History) > 0 {
		p.line("\nhistory of its block (*) and streams, oldest first:")
	}
	for _, e := range in.History {
		mark := " "
		if f.Victim != nil && e.Generation == f.Victim.Generation && e.Generation != 0 {
			mark = "*"
		}
		p.line("%s %s", mark, e)
	}
	p.line("built with %s, fencepost %s", in.Process.Go, in.Process.Fencepost)
	return p.text.String()
}

// suspicion is the title of the suspects. Only the one launch that can have
// done it is called the culprit.
func (f *Finding) suspicion() string {
	switch {
	case f.Kind == names.FindingStickyError:
		return "in flight"
	case f.Unranked:
		return fmt.Sprintf("%d ran meanwhile, in order of time; none declared the block, and there may be others", len(f.Suspects))
	case f.MoreSuspects:
		return fmt.Sprintf("%d suspects, likeliest first; there may be more", len(f.Suspects))
	case len(f.Suspects) == 1:
		return "culprit"
	}
	return fmt.Sprintf("%d suspects, likeliest first", len(f.Suspects))
}

type printer struct{ text strings.Builder }

func (p *printer) line(format string, args ...any) {
	terminal.Fprintf(&p.text, format+"\n", args...)
}

// list prints values one a line, below a title; nothing if there are none.
func list[T any](p *printer, title string, values []T) {
	if len(values) > 0 {
		p.line("\n%s:", title)
	}
	for _, v := range values {
		p.line("  %s", v)
	}
}

func (p *printer) around(s *Surroundings) {
	if s.Incomplete != "" {
		p.line("\nincomplete: %s", s.Incomplete)
	}
	if s.Stack == "" {
		return
	}
	p.line("\naround it:")
	p.line("  device     %s:%d %s, %s", s.Device.Kind, s.Device.Ordinal, s.Device.Name, s.Stack)
	if id := strings.TrimSpace(s.Device.UUID + " " + s.Device.PCIBusID); id != "" {
		p.line("  identity   %s", id)
	}
	if s.Guard.Mode == "" { // not known
		return
	}
	p.line("  guard      %s, policy %s, hunted tags %q", s.Guard.Mode, s.Guard.Policy, s.Guard.HuntTags)
	var numbers []string
	for _, name := range slices.Sorted(maps.Keys(s.Guard.Numbers)) {
		numbers = append(numbers, fmt.Sprintf("%s %d", name, s.Guard.Numbers[name]))
	}
	p.line("             %s", strings.Join(numbers, ", "))
	m := s.Memory
	of := size.Figures(m.Live, m.Pending, m.Quarantined, m.Limit, m.Reserved, m.Cached, m.Fragmented, m.PoolLimit)
	p.line("  memory     live %s, pending %s, quarantined %s of %s; %d launches",
		of(m.Live), of(m.Pending), of(m.Quarantined), of(m.Limit), m.Launches)
	if m.Reserved > 0 {
		var pool phrase
		pool.add(true, "held %s, cached %s", of(m.Reserved), of(m.Cached))
		pool.add(m.Fragmented > 0, ", fragmented %s", of(m.Fragmented))
		pool.add(m.PoolLimit > 0, "; at most %s", of(m.PoolLimit))
		p.line("  pool       %s", pool)
	}
}

// phrase is text of which parts may be absent.
type phrase string

func (t *phrase) add(present bool, format string, args ...any) {
	if present {
		*t += phrase(fmt.Sprintf(format, args...))
	}
}

// String is the use on one line; what does not print is escaped.
func (u Use) String() string {
	var t phrase
	t.add(!u.Time.IsZero(), "%s  ", stamp(u.Time))
	t.add(true, "launch ")
	t.add(u.LaunchID != 0, "%d ", u.LaunchID) // of what an oracle saw it is not known
	t.add(true, "%q on stream %s", u.Launch, core.StreamID(u.Stream))
	t.add(u.Access != "", ", %s", u.Access)
	t.add(len(u.Tags) > 0, ", blocks %q", u.Tags)
	t.add(u.SpanID != "", ", span %s of trace %s", u.SpanID, u.TraceID)
	return terminal.Escape(string(t))
}

// String is the record on one line; what does not print is escaped.
func (e Event) String() string {
	var t phrase
	t.add(true, "%s  %-10s stream %s", stamp(e.Time), e.Op, core.StreamID(e.Stream))
	t.add(e.Generation != 0, " #%d", e.Generation)
	t.add(e.Tag != "", " %q", e.Tag)
	t.add(e.Bytes > 0, " %d bytes", e.Bytes)
	t.add(e.Launch != "", " launch %q %s, %d uses, %d waits", e.Launch, e.Access, e.Uses, e.Waits)
	if e.Error != nil {
		t.add(true, " FAILED: %s", e.Error.Text)
	}
	return terminal.Escape(string(t))
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return "at an unknown time"
	}
	return t.Format(time.RFC3339Nano)
}
