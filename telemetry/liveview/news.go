package liveview

import (
	"errors"

	"github.com/fencepost-gpu/fencepost/core"
)

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
func refusalOf(e *core.Event) object {
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
			"quarantined", short.Quarantined, "claimed", short.Claimed, "holders", holders}
	}
	return object{"time", e.Time, "tag", clip(string(e.Tag.OrUntagged()), maxTagText), "requested", e.Requested, "stream", uint64(e.Stream),
		"relieved", e.Relieved, "text", text, "budget", budget}
}
