package liveview

import (
	"encoding/json"
	"os"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

// state is what the page asks for.
type state struct {
	Time    time.Time `json:"time"`
	PID     int       `json:"pid"`
	Links   []Link    `json:"links"`
	Devices []summary `json:"devices"`
	Device  device    `json:"device"`
}

// summary is a device in the list of all.
type summary struct {
	Ordinal  int    `json:"ordinal"`
	Name     string `json:"name"`
	Health   string `json:"health,omitempty"`
	Charged  uint64 `json:"charged"`
	Limit    uint64 `json:"limit"`
	Findings uint64 `json:"findings"`
}

// device is the one that was asked for. What its source does not say is null.
type device struct {
	Ordinal  int             `json:"ordinal"`
	Name     string          `json:"name"`
	UUID     string          `json:"uuid,omitempty"`
	Stack    string          `json:"stack"`
	Health   *health         `json:"health"`
	Memory   memory          `json:"memory"`
	Counters counters        `json:"counters"`
	Tags     []tagged        `json:"tags"`
	Map      json.RawMessage `json:"map"` // null also if the page has it
	Streams  *Streams        `json:"streams"`
	Findings news[finding]   `json:"findings"`
	Refusals news[refusal]   `json:"refusals"`
	Guard    *Guard          `json:"guard"`
	Files    bool            `json:"files"`
}

// health is how well the device is, and why.
type health struct {
	State   string `json:"state"`
	Reasons []sign `json:"reasons"`
}

type sign struct {
	Reason string    `json:"reason"`
	Text   string    `json:"text"`
	Since  time.Time `json:"since"`
}

// known is what a page has already and need not be sent again.
type known struct{ mapSerial, findings, refusals uint64 }

// state is what device d is like now.
func (v *View) state(d *viewed, has known) state {
	now := time.Now()
	s := state{Time: now, PID: os.Getpid(), Links: v.links, Device: d.look(now, has)}
	for _, other := range v.devices {
		s.Devices = append(s.Devices, other.summary())
	}
	return s
}

func (d *viewed) summary() summary {
	st := d.source.Resource.Stats()
	s := summary{Ordinal: d.source.Resource.Ordinal(), Name: d.source.Name, Charged: st.Charged, Limit: st.Limit}
	if d.source.Health != nil {
		s.Health = d.source.Health().State.String()
	}
	if d.source.Findings != nil {
		s.Findings, _ = d.source.Findings()
	}
	return s
}

func (d *viewed) look(now time.Time, has known) device {
	src := d.source
	st := src.Resource.Stats()
	out := device{
		Ordinal: src.Resource.Ordinal(), Name: src.Name, UUID: src.UUID, Stack: clip(src.Resource.String(), maxText),
		Memory: memoryOf(&st), Counters: countersOf(&st), Map: json.RawMessage("null"),
		Findings: newsOf(src.Findings, has.findings, findingOf), Refusals: newsOf(src.Refusals, has.refusals, refusalOf), Files: src.Files,
	}
	if src.Holders != nil {
		out.Tags = tags(src.Holders())
	}
	if src.Health != nil {
		h := healthOf(src.Health())
		out.Health = &h
	}
	if src.Streams != nil {
		s := src.Streams()
		s.present(now)
		out.Streams = &s
	}
	if src.Guard != nil {
		g := src.Guard()
		out.Guard = &g
	}
	if a := d.whole.soonest(); a.serial != has.mapSerial {
		out.Map = a.text
	}
	return out
}

func healthOf(h core.Health) health {
	out := health{State: h.State.String(), Reasons: []sign{}}
	for _, s := range h.Signs {
		out.Reasons = append(out.Reasons, sign{Reason: string(s.Reason), Text: clip(s.Text, maxText), Since: s.Since})
	}
	return out
}
