package incident

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/terminal"
)

// String is the incident for people, on several lines: the bug, its victim, the
// suspects, the stacks, the uses and what was done around it. What does not print
// in its texts, line ends among it, is escaped: an incident may be anybody's.
func (in *Incident) String() string {
	p := &printer{}
	f := &in.Finding
	p.line("%s: %s", f.Kind, f.Text)
	p.line("  seen       %s by %s, incident %d of process %d (%s)", stamp(f.Time), f.Source, in.Number, in.Process.PID, in.Process.Program)
	if in.Repeats.Omitted > 0 {
		p.line("  repeats    %d like it were left out since %s", in.Repeats.Omitted, stamp(in.Repeats.Since))
	}
	p.victim(f)
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
	p.history(in.History, f.Victim)
	p.line("built with %s, fencepost %s", in.Process.Go, in.Process.Fencepost)
	return p.text.String()
}

// suspicion is the title of the suspects. Only the one launch that can have
// done it is called the culprit.
func (f *Finding) suspicion() string {
	switch {
	case f.Kind == string(core.FindingStickyError):
		return "in flight"
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

func (p *printer) victim(f *Finding) {
	if v := f.Victim; v != nil {
		p.line("  victim     tag %q generation #%d, %d bytes at %v, %s, of stream %s", v.Tag, v.Generation, v.Requested, v.Ptr, v.State, core.StreamID(v.Stream))
	} else {
		p.line("  victim     unknown")
	}
	if d := f.Damage; d != nil {
		p.line("  damage     %d bytes, the first at offset %d (%v): %v expected, %v seen", d.Bytes, d.Offset, f.Victim.at(d.Offset), d.Expected, d.Seen)
	}
}

// at is the address of an offset; a victim that is not known has none.
func (b *Block) at(offset int64) string {
	if b == nil {
		return "at an unknown address"
	}
	return (b.Ptr + Address(offset)).String()
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

// String is the use on one line; what does not print is escaped.
func (u Use) String() string {
	text := "launch "
	if u.LaunchID != 0 { // of what an oracle saw it is not known
		text += fmt.Sprintf("%d ", u.LaunchID)
	}
	text += fmt.Sprintf("%q on stream %s", u.Launch, core.StreamID(u.Stream))
	if !u.Time.IsZero() {
		text = stamp(u.Time) + "  " + text
	}
	if u.Access != "" {
		text += ", " + u.Access
	}
	if len(u.Tags) > 0 {
		text += fmt.Sprintf(", blocks %q", u.Tags)
	}
	if u.SpanID != "" {
		text += fmt.Sprintf(", span %s of trace %s", u.SpanID, u.TraceID)
	}
	return terminal.Escape(text)
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
	for name, n := range s.Guard.Numbers {
		numbers = append(numbers, fmt.Sprintf("%s %d", name, n))
	}
	slices.Sort(numbers)
	p.line("             %s", strings.Join(numbers, ", "))
	p.line("  memory     live %d, pending %d, quarantined %d of %d bytes; %d launches", s.Memory.Live, s.Memory.Pending, s.Memory.Quarantined, s.Memory.Limit, s.Memory.Launches)
	p.pool(s.Memory)
}

// pool prints what the pool held, if it did.
func (p *printer) pool(m Memory) {
	if m.Reserved == 0 {
		return
	}
	text := fmt.Sprintf("held %d, cached %d", m.Reserved, m.Cached)
	if m.Fragmented > 0 {
		text += fmt.Sprintf(", fragmented %d", m.Fragmented)
	}
	if m.PoolLimit > 0 {
		text += fmt.Sprintf("; at most %d", m.PoolLimit)
	}
	p.line("  pool       %s", text)
}

// history prints the records; those of the victim are marked.
func (p *printer) history(events []Event, victim *Block) {
	if len(events) == 0 {
		return
	}
	p.line("\nhistory of its block (*) and streams, oldest first:")
	for _, e := range events {
		mark := " "
		if victim != nil && e.Generation == victim.Generation && e.Generation != 0 {
			mark = "*"
		}
		p.line("%s %s", mark, e)
	}
}

// String is the record on one line; what does not print is escaped.
func (e Event) String() string {
	text := fmt.Sprintf("%s  %-10s stream %s", stamp(e.Time), e.Op, core.StreamID(e.Stream))
	if e.Generation != 0 {
		text += fmt.Sprintf(" #%d", e.Generation)
	}
	if e.Tag != "" {
		text += fmt.Sprintf(" %q", e.Tag)
	}
	if e.Bytes > 0 {
		text += fmt.Sprintf(" %d bytes", e.Bytes)
	}
	if e.Launch != "" {
		text += fmt.Sprintf(" launch %q %s, %d uses, %d waits", e.Launch, e.Access, e.Uses, e.Waits)
	}
	if e.Error != nil {
		text += " FAILED: " + e.Error.Text
	}
	return terminal.Escape(text)
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return "at an unknown time"
	}
	return t.Format(time.RFC3339Nano)
}
