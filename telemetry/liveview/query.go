package liveview

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
)

// serve answers a query as JSON, or says what is wrong with it.
func (v *View) serve(w http.ResponseWriter, r *http.Request, answer func(*query) any) {
	q := &query{values: r.URL.Query(), gone: r.Context().Done(), status: http.StatusBadRequest}
	q.device, q.err = v.device(q.values.Get("device"))
	out := any(nil)
	if q.err == nil {
		out = answer(q)
	}
	if q.err != nil {
		http.Error(w, q.err.Error(), q.status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(out) //nolint:errchkjson // the client went away
}

// device is the one of that ordinal, or the first.
func (v *View) device(text string) (*viewed, error) {
	if text == "" {
		return v.devices[0], nil
	}
	var ordinals []int
	for _, d := range v.devices {
		ordinal := d.source.Resource.Ordinal()
		if text == strconv.Itoa(ordinal) {
			return d, nil
		}
		ordinals = append(ordinals, ordinal)
	}
	return nil, fmt.Errorf("device %q: say one of %v", text, ordinals)
}

// query is what a page asks of a device. An answer that comes with an err is not
// sent.
type query struct {
	device *viewed
	values url.Values
	gone   <-chan struct{} // closed when nobody waits for the answer
	err    error           // the first, which is answered with status
	status int
}

// number is a number of the query, in decimal or as 0x and hexadecimal.
func (q *query) number(name string, otherwise uint64) uint64 {
	text := q.values.Get(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 0, 64)
	if err != nil && q.err == nil {
		q.err = fmt.Errorf("%s %q: write a number, such as 4096 or 0x1000", name, text)
	}
	return n
}

// stretch is the addresses of the query.
func (q *query) stretch(end uint64) stretch {
	s := stretch{q.number("from", 0), q.number("to", end)}
	if q.err == nil && s.from >= s.to {
		q.err = errors.New("from: say an address below to")
	}
	return s
}

func (v *View) answerState(q *query) any {
	has := known{mapSerial: q.number("map", 0), findings: q.number("findings", 0), refusals: q.number("refusals", 0)}
	if q.err != nil {
		return nil
	}
	return v.state(q.device, has)
}

// blocks lists blocks. The answer is written without the lock: a client may take
// it slowly, or never.
func (q *query) blocks() any {
	of := q.stretch(everything.to)
	if q.err != nil {
		return nil
	}
	q.device.listing.Lock()
	defer q.device.listing.Unlock()
	return blocksIn(q.device.inspector, of)
}

// zoom is the map of a stretch, or nothing if the page has it.
func (q *query) zoom() any {
	of, has := q.stretch(0), q.number("map", 0)
	if q.err != nil {
		return nil
	}
	if a := q.device.zoomer.newest(of, q.gone); a != nil && a.serial != has {
		return a.text
	}
	return nil
}

func (q *query) past() any {
	if q.device.past == nil {
		q.err, q.status = errors.New("nobody keeps the history of this device"), http.StatusNotFound
		return nil
	}
	return q.device.past.newest().text
}
