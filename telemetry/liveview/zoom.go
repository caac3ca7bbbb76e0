package liveview

import (
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

// The bounds of maps of a stretch of addresses.
const (
	// minPartShift is of the smallest parts, in which allocators give out memory.
	minPartShift = 9
	// zoomParts is into how many parts a stretch is divided at most, and zoomsKept
	// how many maps are kept, for pages that look at different stretches.
	zoomParts = 1 << 12
	zoomsKept = 8
)

// stretch is from..to, to excluded.
type stretch struct{ from, to uint64 }

// aligned is the stretch in whole parts, and their size: the finest that are not
// too many.
func (s stretch) aligned() (stretch, uint) {
	shift := uint(minPartShift)
	for (s.to-s.from)>>shift > zoomParts {
		shift++
	}
	part := uint64(1)<<shift - 1
	s.from &^= part
	if to := (s.to + part) &^ part; to > s.to { // the last part of all has no end
		s.to = to
	}
	return s, shift
}

// cut is the part of a block that lies in the stretch.
func (s stretch) cut(b core.Block) (core.Block, bool) {
	from, to := max(b.ID.Ptr, s.from), min(b.ID.Ptr+b.Bytes, s.to)
	if from >= to {
		return b, false
	}
	b.ID.Ptr, b.Bytes = from, to-from
	return b, true
}

// zoomer makes maps of stretches of a device's addresses, at a finer resolution
// than that of everything. They take at most half of a processor in all: after each,
// the next one waits for as long as that took. A stretch that is requested again is
// mapped anew as often as everything is.
type zoomer struct {
	inspector core.Inspector

	mu     sync.Mutex
	rested time.Time
	serial uint64
	kept   []zoomed // the last asked for is last
}

type zoomed struct {
	of     stretch
	serial uint64
	text   json.RawMessage
	due    time.Time
}

// newest is the map of a stretch. It waits for other maps that are being made, and
// for the pause behind them; gone ends the wait.
func (z *zoomer) newest(of stretch, gone <-chan struct{}) (json.RawMessage, uint64) {
	z.mu.Lock()
	defer z.mu.Unlock()
	i := slices.IndexFunc(z.kept, func(k zoomed) bool { return k.of == of })
	if i >= 0 {
		k := z.kept[i]
		z.kept = append(slices.Delete(z.kept, i, i+1), k)
		if time.Now().Before(k.due) {
			return k.text, k.serial
		}
		z.kept = z.kept[:len(z.kept)-1]
	}
	select {
	case <-time.After(time.Until(z.rested)):
	case <-gone:
		return nil, 0
	}
	began := time.Now()
	m := surveyOf(z.inspector, of)
	took := time.Since(began)
	z.serial++
	m.Serial = z.serial
	text, err := json.Marshal(m)
	if err != nil { // it has nothing that could not be written
		return nil, 0
	}
	z.rested = time.Now().Add(took)
	z.kept = append(z.kept[max(0, len(z.kept)-zoomsKept+1):], zoomed{of, z.serial, text, time.Now().Add(max(mapInterval, mapShare*took))})
	return text, z.serial
}

// serveMap answers with the map of a stretch, or with nothing if the page has it.
func (v *View) serveMap(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	d, err := v.device(query)
	var of stretch
	var has uint64
	for name, into := range map[string]*uint64{"from": &of.from, "to": &of.to, "map": &has} {
		if err == nil {
			*into, err = number(query, name, 0)
		}
	}
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
	case of.from >= of.to:
		http.Error(w, "from: say an address below to", http.StatusBadRequest)
	default:
		text, serial := d.zoomer.newest(of, r.Context().Done())
		if text == nil || serial == has {
			text = json.RawMessage("null")
		}
		writeJSON(w, text)
	}
}
