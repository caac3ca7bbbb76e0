package liveview

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

// historian keeps the newest past of a device for everybody who asks: pages ask
// when they are opened. Like the map it is made at most this often and for at
// most mapShare of the time; what happens meanwhile the pages see themselves.
type historian struct {
	source Source

	mu   sync.Mutex
	text json.RawMessage
	due  time.Time
}

const pastInterval = time.Second

// newest is the past as JSON. Callers wait while it is made.
func (h *historian) newest() (json.RawMessage, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.text != nil && time.Now().Before(h.due) {
		return h.text, nil
	}
	began := time.Now()
	// What is held belongs to an instant, and the events to one that is later: so
	// no event is missing that is to be undone.
	holders := h.source.Holders()
	past := h.source.Past()
	text, err := json.Marshal(past.reconstruct(began, holders))
	if err != nil {
		return nil, err
	}
	ended := time.Now()
	h.text, h.due = text, ended.Add(max(pastInterval, mapShare*ended.Sub(began)))
	return text, nil
}

func (v *View) servePast(w http.ResponseWriter, r *http.Request) {
	d, err := v.device(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if d.past == nil {
		http.Error(w, "nobody keeps the history of this device", http.StatusNotFound)
		return
	}
	text, err := d.past.newest()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writeJSON(w, text)
}
