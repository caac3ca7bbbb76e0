package liveview

import (
	"errors"
	"slices"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

// news are the newest of what there were Total of, newest first. Items is null
// if there are none that the page does not have.
type news[T any] struct {
	Total uint64 `json:"total"`
	Items []T    `json:"items"`
}

// finding is a memory bug as the page shows it.
type finding struct {
	Time       time.Time `json:"time"`
	Kind       string    `json:"kind"`
	Source     string    `json:"source"`
	Text       string    `json:"text"`
	Tag        string    `json:"tag,omitempty"`
	Generation uint64    `json:"generation,omitempty"`
	// Detail is the whole finding, with stacks and suspects.
	Detail string `json:"detail"`
}

// refusal is a request that a budget refused.
type refusal struct {
	Time      time.Time `json:"time"`
	Tag       string    `json:"tag"`
	Requested uint64    `json:"requested"`
	Stream    uint64    `json:"stream"`
	// Relieved: the guard cured it, and its caller got the memory.
	Relieved bool   `json:"relieved"`
	Text     string `json:"text"`
	// Budget is how it stood; null if the error does not say.
	Budget *budgetThen `json:"budget"`
}

type budgetThen struct {
	Limit       uint64   `json:"limit"`
	Remaining   uint64   `json:"remaining"`
	Live        uint64   `json:"live"`
	Pending     uint64   `json:"pending"`
	Quarantined uint64   `json:"quarantined"`
	Claimed     uint64   `json:"claimed"`
	Holders     []holder `json:"holders"`
}

type holder struct {
	Tag    string `json:"tag"`
	State  string `json:"state"`
	Bytes  uint64 `json:"bytes"`
	Blocks uint64 `json:"blocks"`
}

// newsOf are the newest that read tells, unless the page has as many.
func newsOf[E, T any](read func() (total uint64, newest []E), has uint64, show func(*E) T) (n news[T]) {
	if read == nil {
		return n
	}
	var newest []E
	if n.Total, newest = read(); n.Total == has {
		return n
	}
	for i := range min(len(newest), maxNews) {
		n.Items = append(n.Items, show(&newest[len(newest)-1-i]))
	}
	return n
}

func findingOf(f *core.Finding) finding {
	item := finding{Time: f.Time, Kind: string(f.Kind), Source: f.Source, Text: clip(f.Text, maxText), Detail: clip(f.String(), maxLongText)}
	if f.Victim.ID.Generation != 0 || f.Victim.Tag != "" {
		item.Tag, item.Generation = clip(string(f.Victim.Tag.OrUntagged()), maxTagText), uint64(f.Victim.ID.Generation)
	}
	return item
}

func refusalOf(e *core.Event) refusal {
	r := refusal{Time: e.Time, Tag: clip(string(e.Tag.OrUntagged()), maxTagText), Requested: e.Requested, Stream: uint64(e.Stream), Relieved: e.Relieved}
	if e.Err != nil {
		r.Text = clip(e.Err.Error(), maxText)
	}
	if short, ok := errors.AsType[*core.OutOfBudgetError](e.Err); ok {
		r.Budget = &budgetThen{Limit: short.Limit, Remaining: short.Remaining, Live: short.Live, Pending: short.Pending,
			Quarantined: short.Quarantined, Claimed: short.Claimed, Holders: []holder{}}
		for h := range slices.Values(short.Holders[:min(len(short.Holders), maxNews)]) {
			r.Budget.Holders = append(r.Budget.Holders, holder{Tag: clip(string(h.Tag), maxTagText), State: h.State.String(), Bytes: h.Bytes, Blocks: h.Blocks})
		}
	}
	return r
}
