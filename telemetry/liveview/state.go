package liveview

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/core/readings"
	"github.com/fencepost-gpu/fencepost/telemetry/internal/jsonobject"
)

type object = jsonobject.Object

// known is what a page has already and need not be sent again.
type known struct{ mapSerial, findings, refusals uint64 }

// state is what the page asks for: all devices in short, and what device d is like
// now.
func (v *View) state(d *viewed, has known) object {
	now := time.Now()
	var devices []object
	for _, other := range v.devices {
		devices = append(devices, other.summary())
	}
	return object{"time", now, "pid", os.Getpid(), "links", v.links, "devices", devices, "device", d.look(now, has)}
}

func (d *viewed) summary() object {
	src, st := d.source, d.source.Resource.Stats()
	out := object{"ordinal", src.Resource.Ordinal(), "name", src.Name}
	if src.Health != nil {
		out = append(out, "health", src.Health().State)
	}
	var findings uint64
	if src.Findings != nil {
		findings, _ = src.Findings()
	}
	return append(out, "charged", st.Charged, "limit", st.Limit, "findings", findings)
}

// look is all of a device. What its source does not say is null, and so is a map
// that the page has.
func (d *viewed) look(now time.Time, has known) object {
	src, st := d.source, d.source.Resource.Stats()
	out := object{"ordinal", src.Resource.Ordinal(), "name", src.Name}
	if src.UUID != "" {
		out = append(out, "uuid", src.UUID)
	}
	addresses := any(nil)
	if a := d.whole.soonest(); a.serial != has.mapSerial {
		addresses = a.text
	}
	return append(out, "stack", clip(src.Resource.String(), maxText),
		"health", told(src.Health, healthOf),
		"memory", memoryOf(&st), "counters", countersOf(&st),
		"tags", told(src.Holders, tags), "map", addresses,
		"jobs", told(src.Jobs, func(j Jobs) Jobs { return j }),
		"streams", told(src.Streams, func(s Streams) object { return streamsOf(s, now) }),
		"findings", newsOf(src.Findings, has.findings, findingOf), "refusals", newsOf(src.Refusals, has.refusals, refusalOf),
		"guard", told(src.Guard, func(g Guard) Guard { return g }), "files", src.Files)
}

// told is what a source says as the page shows it, null if it does not say.
func told[T, Shown any](read func() T, show func(T) Shown) any {
	if read == nil {
		return nil
	}
	return show(read())
}

func healthOf(h core.Health) object {
	return object{"state", h.State, "reasons", signsOf(h.Signs), "notes", signsOf(h.Notes)}
}

func signsOf(signs []core.HealthSign) []object {
	out := []object{}
	for _, s := range signs {
		out = append(out, object{"reason", s.Reason, "text", clip(s.Text, maxText), "since", s.Since})
	}
	return out
}

// The bounds of the parts of a state.
const (
	maxTags    = 64
	maxStreams = 64
	maxPoints  = 64 // of one stream's clock
	maxNews    = 32 // findings, and refusals
)

// tagged is what a tag is charged for. The sum of what is left out has no tag.
type tagged struct {
	Tag           string `json:"tag,omitempty"`
	Live          uint64 `json:"live"`
	LiveBlocks    uint64 `json:"live_blocks"`
	Pending       uint64 `json:"pending"`
	PendingBlocks uint64 `json:"pending_blocks"`
	// Quarantined is what the guard holds back.
	Quarantined       uint64 `json:"quarantined"`
	QuarantinedBlocks uint64 `json:"quarantined_blocks"`
	// Others is how many tags a sum is of.
	Others int `json:"others,omitempty"`
}

func (t *tagged) add(o tagged) {
	t.Live, t.LiveBlocks = t.Live+o.Live, t.LiveBlocks+o.LiveBlocks
	t.Pending, t.PendingBlocks = t.Pending+o.Pending, t.PendingBlocks+o.PendingBlocks
	t.Quarantined, t.QuarantinedBlocks = t.Quarantined+o.Quarantined, t.QuarantinedBlocks+o.QuarantinedBlocks
}

func (t *tagged) bytes() uint64 { return t.Live + t.Pending + t.Quarantined }

// shownTag is what the page knows a tag by.
func shownTag(tag core.Tag) string {
	return clip(string(tag.OrUntagged()), maxTagText)
}

// byTag adds up what each tag has. Tags that are shown alike are one.
func byTag(holders []core.Holder) []tagged {
	list := []tagged{}
	index := map[string]int{}
	for _, h := range holders {
		name := shownTag(h.Tag)
		i, ok := index[name]
		if !ok {
			i = len(list)
			index[name] = i
			list = append(list, tagged{Tag: name})
		}
		switch h.State {
		case core.Retired:
			list[i].add(tagged{Pending: h.Bytes, PendingBlocks: h.Blocks})
		case core.Quarantined:
			list[i].add(tagged{Quarantined: h.Bytes, QuarantinedBlocks: h.Blocks})
		default:
			list[i].add(tagged{Live: h.Bytes, LiveBlocks: h.Blocks})
		}
	}
	return list
}

// tags is the tags that have most, largest first, and the sum of the others.
func tags(holders []core.Holder) []tagged {
	list := byTag(holders)
	slices.SortStableFunc(list, func(a, b tagged) int {
		return cmp.Or(cmp.Compare(b.bytes(), a.bytes()), cmp.Compare(a.Tag, b.Tag))
	})
	if len(list) <= maxTags {
		return list
	}
	sum := tagged{Others: len(list) - maxTags}
	for _, t := range list[maxTags:] {
		sum.add(t)
	}
	return append(list[:maxTags], sum)
}

// streamsOf bounds the list, leased streams first.
func streamsOf(s Streams, now time.Time) object {
	slices.SortFunc(s.List, func(a, b readings.StreamInfo) int {
		switch {
		case (a.Lease == nil) == (b.Lease == nil):
			return a.Number - b.Number
		case a.Lease != nil:
			return -1
		}
		return 1
	})
	list := []object{}
	for _, one := range s.List[:min(len(s.List), maxStreams)] {
		list = append(list, streamOf(one, now))
	}
	st := &s.Stats
	return object{"limit", st.Max, "leased", st.Leased, "idle", st.Idle, "adopted", st.Adopted, "waiting", st.Waiting,
		"list", list, "omitted", len(s.List) - len(list)}
}

func streamOf(s readings.StreamInfo, now time.Time) object {
	out := object{"number", s.Number, "busy", s.Busy, "capturing", s.Capturing, "seq", s.Seq, "completed", s.Completed,
		"after", s.After[:min(len(s.After), maxPoints)], "last", clip(s.Last.Launch, maxTagText),
		"open_launches", s.OpenLaunches, "pending_frees", s.PendingFrees, "pending_bytes", s.PendingBytes,
		"launches", s.Launches, "waits_queued", s.WaitsQueued, "waits_elided", s.WaitsElided}
	if s.Default {
		out = append(out, "name", core.DefaultStream.String())
	}
	if l := s.Lease; l != nil {
		out = append(out, "lease", uint64(l.ID), "tag", clip(string(l.Tag), maxTagText), "adopted", l.Adopted,
			"age_ms", age(now, l.Since), "at", caller(l.Stack))
	}
	return out
}

// newsOf are the newest of what there were so many of, newest first; none if the
// page has as many.
func newsOf[E any](read func() (total uint64, newest []E), has uint64, show func(*E) object) object {
	var total uint64
	var newest []E
	if read != nil {
		total, newest = read()
	}
	var items []object // null without any
	if total != has {
		for i := range min(len(newest), maxNews) {
			items = append(items, show(&newest[len(newest)-1-i]))
		}
	}
	return object{"total", total, "items", items}
}

// findingOf is a memory bug as the page shows it. Its detail is all of it, with
// stacks and suspects.
func findingOf(f *core.Finding) object {
	out := object{"time", f.Time, "kind", string(f.Kind), "source", f.Source, "text", clip(f.Text, maxText)}
	generation := uint64(f.Victim.ID.Generation)
	if generation != 0 || f.Victim.Tag != "" {
		out = append(out, "tag", clip(string(f.Victim.Tag.OrUntagged()), maxTagText))
	}
	if generation != 0 {
		out = append(out, "generation", generation)
	}
	return append(out, "detail", clip(f.String(), maxLongText))
}

// refusalOf is a request that a budget refused, and how that stood, null if the
// error does not say. One that is relieved was cured by the guard: its caller got
// the memory.
func refusalOf(e *oplog.Event) object {
	text, budget := "", any(nil)
	if e.Err != nil {
		text = clip(e.Err.Error(), maxText)
	}
	if short, ok := errors.AsType[*core.OutOfBudgetError](e.Err); ok {
		holders := []object{}
		for _, h := range short.Holders[:min(len(short.Holders), maxNews)] {
			holders = append(holders, object{"tag", clip(string(h.Tag), maxTagText), "state", h.State.String(), "bytes", h.Bytes, "blocks", h.Blocks})
		}
		budget = object{"limit", short.Limit, "remaining", short.Remaining, "live", short.Live, "pending", short.Pending,
			"quarantined", short.Quarantined, "claimed", short.Claimed, "holders", holders, "more_holders", short.MoreHolders,
			"more_bytes", short.MoreBytes,
			"waited_ns", int64(short.Wait.For), "ahead", short.Wait.Ahead, "ahead_bytes", short.Wait.AheadBytes,
			"ahead_tag", clip(string(short.Wait.First), maxTagText), "learning", short.Wait.Learning}
	}
	return object{"time", e.Time, "tag", clip(string(e.Tag.OrUntagged()), maxTagText), "requested", e.Requested, "stream", uint64(e.Stream),
		"relieved", e.Relieved, "text", text, "budget", budget}
}

func amountOf(a core.Amount) object {
	return object{"bytes", a.Bytes, "requested", a.Requested, "blocks", a.Blocks}
}

func memoryOf(st *core.Stats) object {
	return object{
		"live", amountOf(st.Live), "pending", amountOf(st.Pending), "quarantined", amountOf(st.Quarantined),
		"claimed", st.Claimed, "claims", st.Claims, "limit", st.Limit, "charged", st.Charged,
		"peak", st.PeakBytes, "pool_reserved", st.Reserved, "pool_used", st.PoolUsed, "pool_cached", st.Cached, "isolated", st.Isolated,
		"own_pool", ownPoolOf(&st.OwnPool),
	}
}

// ownPoolOf is nil where the pool is the driver's.
func ownPoolOf(p *core.OwnPoolStats) any {
	if !p.Present {
		return nil
	}
	return object{"fragmented", p.Fragmented, "limit", p.Limit}
}

func countersOf(st *core.Stats) object {
	return object{
		"allocations", st.Allocations, "deallocations", st.Deallocations, "failures", st.Failures, "refusals", st.Refusals,
		"launches", st.Launches, "cross_stream", st.CrossStream, "waits_queued", st.WaitsQueued, "waits_elided", st.WaitsElided,
		"open_intents", st.OpenIntents, "events", st.Events, "poisoned", st.Poisoned,
	}
}

// How much of texts that come from the program is shown.
const (
	maxTagText  = 96
	maxText     = 1 << 10
	maxLongText = 8 << 10
	maxFrames   = 24
)

// clip cuts a text to at most n bytes, and says so.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	const mark = "…"
	n -= len(mark)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + mark
}

// frames renders a stack, innermost first, from the first frame of the program
// on.
func frames(s core.Stack) []string {
	lines := s.Lines()
	lines = lines[:min(len(lines), maxFrames)]
	for i := range lines {
		lines[i] = clip(lines[i], maxText)
	}
	return lines
}

// caller is the first frame of the program, short.
func caller(s core.Stack) string {
	all := s.Frames()
	if len(all) == 0 {
		return ""
	}
	f := all[0]
	return clip(fmt.Sprintf("%s %s:%d", path.Base(f.Function), path.Base(f.File), f.Line), maxText)
}
