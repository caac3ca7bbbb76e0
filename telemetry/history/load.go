package history

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
)

// loaded is a history in memory. Times are nanoseconds since its origin.
type loaded struct {
	events   []oplog.Event
	findings []core.Finding
	origin   time.Time
	// end is when the last operation ended.
	end int64
	// books are by device, in the order of ordinals.
	books []*book
	// listed is what the resources know of blocks.
	listed map[core.Generation]listedBlock
	// listedAt is when that began, zero if it is not known.
	listedAt time.Time
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
	h := &loaded{listed: s.listed, listedAt: s.listedAt, events: s.Events()}
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
		t := h.events[i].Time
		if d := h.events[i].Device; d != nil && d.Reached.Before(t) {
			t = d.Reached
		}
		if i == 0 || t.Before(h.origin) {
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
func (h *loaded) begin(e *oplog.Event) int64 { return h.since(e.Time) }

func (h *loaded) after(e *oplog.Event) int64 {
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
	for _, b := range h.books {
		b.listed, b.listedAt = h.listed, h.listedAt
	}
	for i := range h.findings {
		bookOf(h.findings[i].Victim.ID.Ordinal)
	}
	slices.SortFunc(h.books, func(a, b *book) int { return a.ordinal - b.ordinal })
	return nil
}

// memory is what belongs to a block.
type memory struct {
	id               core.BlockID
	bytes, requested uint64
	tag              core.Tag
}

func (h *memory) end() uint64 { return h.id.Ptr + h.bytes }

func memoryOf(id core.BlockID, bytes, requested uint64, tag core.Tag) memory {
	return memory{id: id, bytes: max(bytes, requested, 1), requested: max(requested, 1), tag: tag.OrUntagged()}
}

func memoryOfEvent(e *oplog.Event) memory { return memoryOf(e.Block, e.Bytes, e.Requested, e.Tag) }

// book is what a history says of the blocks of one device.
//
// A history has lost its beginning, and perhaps records in between. So a
// block may be freed that was never allocated in it: that one was there from
// the beginning, unless another one had its addresses then. And addresses may
// be allocated that still has an owner: the device passes memory on in stream
// order before the runtime hears of it, so the older block is gone by then.
type book struct {
	ordinal int
	// releases is set if the log has them, which is so if it has launches: both
	// are of the level Uses. If not, a free is also the release.
	releases bool
	// allocated are the blocks whose allocation is in the history, places the
	// same by address.
	allocated map[core.Generation]bool
	places    []memory
	// early are the others, retired if they were freed before.
	early map[core.Generation]listedBlock
	// listed are the blocks that resources list, of all devices, since a time. A block that was freed
	// before, and is not listed, is released, though the history may have lost the record of that.
	listed   map[core.Generation]listedBlock
	listedAt time.Time
}

func newBook(ordinal int) *book {
	return &book{ordinal: ordinal, allocated: map[core.Generation]bool{}, early: map[core.Generation]listedBlock{}}
}

// maxAddress is beyond what any device has. Sums of it do not overflow.
const maxAddress = 1 << 62

var errAddress = errors.New("the block lies beyond what an address can be")

// enter takes note of an event before the history is replayed.
func (b *book) enter(e *oplog.Event) error {
	switch e.Op {
	case oplog.OpPrepare, oplog.OpFinish, oplog.OpAbort, oplog.OpRecord, oplog.OpRelease:
		b.releases = true
	}
	if !concernsBlock(e) {
		return nil
	}
	if e.Block.Ptr >= maxAddress || e.Bytes >= maxAddress || e.Requested >= maxAddress {
		return fmt.Errorf("%v of %v: %w", e.Op, e.Block, errAddress)
	}
	g := e.Block.Generation
	_, early := b.early[g]
	switch {
	case e.Op == oplog.OpAllocate:
		b.allocated[g] = true
		b.places = append(b.places, memoryOfEvent(e))
		delete(b.early, g) // recorded late
	case !b.allocated[g] && !early:
		l := listedBlock{memory: memoryOfEvent(e), state: core.Live}
		if e.Op == oplog.OpRelease {
			l.state = core.Retired
		}
		b.early[g] = l
	}
	return nil
}

// concernsBlock reports whether e changes what is allocated.
func concernsBlock(e *oplog.Event) bool {
	if e.Err != nil || e.Block.Generation == 0 {
		return false
	}
	return e.Op == oplog.OpAllocate || e.Op == oplog.OpDeallocate || e.Op == oplog.OpRelease
}

// complete adds a block that is held now, if the history does not know it.
func (b *book) complete(l listedBlock) {
	g := l.id.Generation
	if _, early := b.early[g]; early || b.allocated[g] || l.id.Ptr >= maxAddress || l.bytes >= maxAddress {
		return
	}
	b.early[g] = l
}
