package liveview

import (
	"os"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
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
		out = append(out, "health", src.Health().State.String())
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
	reasons := []object{}
	for _, s := range h.Signs {
		reasons = append(reasons, object{"reason", string(s.Reason), "text", clip(s.Text, maxText), "since", s.Since})
	}
	return object{"state", h.State.String(), "reasons", reasons}
}
