package history

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

// loaded is a history in memory. Times are nanoseconds since its origin.
type loaded struct {
	events   []core.Event
	findings []core.Finding
	origin   time.Time
	// end is when the last operation ended.
	end int64
	// books are by device, in the order of ordinals.
	books []*book
	// listed is what the resources know of blocks.
	listed map[core.Generation]listedBlock
}

// listedBlock is a block as the resources list it.
type listedBlock struct {
	memory
	state core.BlockState
	stack core.Stack
}

// load reads the source.
func (s Source) load() (*loaded, error) {
	if s.listed == nil {
		s = s.ListNow()
	}
	h := &loaded{listed: s.listed}
	h.events = s.Events()
	if s.Findings != nil {
		h.findings = s.Findings()
	}
	h.findOrigin()
	if err := h.keepBooks(); err != nil {
		return nil, err
	}
	return h, nil
}

// findOrigin takes the beginning of the first operation for the origin, and
// leaves out the findings before it: hours older than the history, they would
// leave no room for it.
func (h *loaded) findOrigin() {
	for i := range h.events {
		if t := h.events[i].Time; i == 0 || t.Before(h.origin) {
			h.origin = t
		}
	}
	h.findings = slices.DeleteFunc(slices.Clone(h.findings), func(f core.Finding) bool { return f.Time.Before(h.origin) })
	if len(h.events) == 0 && len(h.findings) > 0 {
		h.origin = slices.MinFunc(h.findings, func(a, b core.Finding) int { return a.Time.Compare(b.Time) }).Time
	}
	for i := range h.events {
		h.end = max(h.end, h.after(&h.events[i]))
	}
	for i := range h.findings {
		h.end = max(h.end, h.since(h.findings[i].Time))
	}
}

// since is an instant on the history's own clock.
func (h *loaded) since(t time.Time) int64 { return int64(t.Sub(h.origin)) }

// begin and after are when an event began and ended.
func (h *loaded) begin(e *core.Event) int64 { return h.since(e.Time) }

func (h *loaded) after(e *core.Event) int64 {
	begin := h.begin(e)
	return begin + min(int64(max(e.Duration, 0)), math.MaxInt64-begin) // a log may say anything
}

func (h *loaded) keepBooks() error {
	byDevice := map[int]*book{}
	bookOf := func(ordinal int) *book {
		if byDevice[ordinal] == nil {
			byDevice[ordinal] = newBook(ordinal)
			h.books = append(h.books, byDevice[ordinal])
		}
		return byDevice[ordinal]
	}
	for i := range h.events {
		e := &h.events[i]
		if e.Ordinal < 0 || e.Ordinal >= core.MaxOrdinals {
			return fmt.Errorf("event %d is of device %d: ordinals are below %d", i+1, e.Ordinal, core.MaxOrdinals)
		}
		if err := bookOf(e.Ordinal).enter(e); err != nil {
			return fmt.Errorf("event %d: %w", i+1, err)
		}
	}
	for _, b := range h.listed {
		bookOf(b.id.Ordinal).complete(b)
	}
	for i := range h.findings {
		bookOf(h.findings[i].Victim.ID.Ordinal)
	}
	slices.SortFunc(h.books, func(a, b *book) int { return a.ordinal - b.ordinal })
	return nil
}
