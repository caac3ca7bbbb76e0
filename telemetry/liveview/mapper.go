package liveview

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

// The map of a device is made anew when it is asked for, at most this often
// and for at most this part of the time.
const (
	mapInterval = 500 * time.Millisecond
	mapShare    = 20
)

// mapper keeps the newest map of a device for everybody who asks.
type mapper struct {
	inspector core.Inspector
	// survey is replaced by tests, and so is now.
	survey func(core.Inspector) *addressMap
	now    func() time.Time

	// making is held while a map is made; mu guards what it ends as.
	making sync.Mutex
	mu     sync.Mutex
	serial uint64
	text   json.RawMessage
	due    time.Time
}

func newMapper(r core.Resource) *mapper {
	return &mapper{inspector: r.Inspect(), survey: survey, now: time.Now}
}

// newest returns the map as JSON and its number. While a map is made, callers get the
// former one; they wait only if there is none.
func (m *mapper) newest() (json.RawMessage, uint64) {
	if text, serial, fresh := m.have(); fresh {
		return text, serial
	}
	if !m.making.TryLock() {
		if text, serial, _ := m.have(); text != nil {
			return text, serial
		}
		m.making.Lock()
	}
	defer m.making.Unlock()
	if text, serial, fresh := m.have(); fresh {
		return text, serial // somebody else's
	}
	return m.remake()
}

func (m *mapper) have() (text json.RawMessage, serial uint64, fresh bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.text, m.serial, m.text != nil && m.now().Before(m.due)
}

// remake makes a map; making must be held.
func (m *mapper) remake() (json.RawMessage, uint64) {
	began := m.now()
	next := m.survey(m.inspector)
	next.Serial = m.serial + 1
	text, err := json.Marshal(next)
	if err != nil { // it has nothing that could not be written
		text = json.RawMessage("null")
	}
	ended := m.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.text, m.serial = text, next.Serial
	m.due = ended.Add(max(mapInterval, mapShare*ended.Sub(began)))
	return m.text, m.serial
}
