package fencepost

import (
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/telemetry/liveview"
)

// liveSource is what the live view shows of the runtime. It makes no device
// call.
func (r *Runtime) liveSource(cfg HandlerConfig) liveview.Source {
	return liveview.Source{
		Name:     r.device.String(),
		UUID:     r.device.UUID,
		Resource: r.Resource(),
		Holders:  r.budget.Holders,
		Past:     r.livePast,
		Health:   r.Health,
		Streams:  r.liveStreams,
		Findings: func() (uint64, []core.Finding) { return r.findings.Total(), r.findings.Recent() },
		Refusals: r.refusals.Newest,
		Files:    cfg.Incidents && r.incidents != nil,
		Guard: func() liveview.Guard {
			s := r.GuardStatus()
			return liveview.Guard{Setting: s.Setting, Policy: s.Policy, HuntTags: s.HuntTags, Numbers: s.Numbers, Switch: cfg.SwitchGuard}
		},
	}
}

// livePast is what the log in memory and the guard remember.
func (r *Runtime) livePast() liveview.Past {
	p := liveview.Past{OwnTag: debugguard.CanaryTag, Releases: r.logsReleases}
	p.Events = r.ring.Events()
	p.EventsSince = r.ring.Since() // after them: what was given up meanwhile is not there
	stays, since := r.guard.Stays()
	p.StaysSince = since
	for _, s := range stays {
		p.Stays = append(p.Stays, liveview.Stay(s))
	}
	return p
}

func (r *Runtime) liveStreams() liveview.Streams {
	st := r.streams.Stats()
	out := liveview.Streams{Limit: st.Max, Leased: st.Leased, Idle: st.Idle, Adopted: st.Adopted, Waiting: st.Waiting, List: []liveview.Stream{}}
	for _, s := range r.streams.Inspect() {
		out.List = append(out.List, liveStream(s))
	}
	return out
}

func liveStream(s cuda.StreamInfo) liveview.Stream {
	out := liveview.Stream{Number: s.Number, Busy: s.Busy, Capturing: s.Capturing, Seq: s.Seq, Completed: s.Completed, Last: s.Last.Launch,
		OpenLaunches: s.OpenLaunches, PendingFrees: s.PendingFrees, PendingBytes: s.PendingBytes,
		Launches: s.Launches, WaitsQueued: s.WaitsQueued, WaitsElided: s.WaitsElided}
	if s.Default {
		out.Name = core.DefaultStream.String()
	}
	if s.Lease != nil {
		out.Lease, out.Tag, out.Since, out.Where, out.Adopted = uint64(s.Lease.ID), string(s.Lease.Tag), s.Lease.Since, s.Lease.Stack, s.Lease.Adopted
	}
	for _, p := range s.After {
		out.After = append(out.After, liveview.Point(p))
	}
	return out
}
