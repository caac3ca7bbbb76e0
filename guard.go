package fencepost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/guardkernels"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/deadline"
	"github.com/fencepost-gpu/fencepost/internal/operators"
	"github.com/fencepost-gpu/fencepost/telemetry"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

// GuardStatus is how the debug guard is set and what it did.
type GuardStatus struct {
	// Setting is the mode with its options, as [Config.Guard] takes it.
	Setting GuardMode   `json:"setting"`
	Policy  GuardPolicy `json:"policy"`
	// Faults is "armed" where faults of kernels are named, see [Config.Faults], "off", or "not armed: " and why.
	Faults string `json:"faults"`
	// KernelLog is "read" where a lost device's finding has its Xids, see [Config.KernelLog], "off", or "not readable: " and why.
	KernelLog string `json:"kernel_log"`
	// HuntTags are the hunted tags.
	HuntTags []string `json:"hunt_tags"`
	// Numbers are the guard's own, by name.
	Numbers map[string]uint64 `json:"numbers"`
	// Findings is how many there were, of the guard and of all others.
	Findings uint64 `json:"findings"`
}

// GuardStatus is how the debug guard is set now. It makes no device call.
func (r *Runtime) GuardStatus() GuardStatus {
	if r == nil {
		return GuardStatus{}
	}
	setting := r.guard.Setting()
	if setting.Mode == debugguard.Sample && r.guard.SampleRate() == 0 {
		setting.SampleBytes = r.guard.SampleBytes() // also where it is the configuration's
	}
	s := GuardStatus{Setting: GuardMode(setting.String()), Policy: r.policy, Faults: cmp.Or(r.faults.state, string(FaultsOff)), KernelLog: r.kernelLog.state, HuntTags: []string{}, Numbers: map[string]uint64{}, Findings: r.findings.Total()}
	for _, tag := range r.guard.HuntedTags() {
		s.HuntTags = append(s.HuntTags, string(tag))
	}
	stats := r.guardStats()
	maps.Copy(s.Numbers, stats.Counts)
	maps.Copy(s.Numbers, stats.Levels)
	s.Numbers["quarantine_bytes"], s.Numbers["quarantine_blocks"] = stats.Quarantine.Bytes, stats.Quarantine.Blocks
	return s
}

// guardStats are the guard's numbers for metrics, incidents and the status: a
// number more is a row more, here and in the notes of dev/tools/metrics.
func (r *Runtime) guardStats() metrics.GuardStats {
	st := r.guard.GuardStats()
	out := metrics.GuardStats{Mode: st.Mode.String(), Quarantine: st.Quarantine}
	for m := debugguard.Off; m <= debugguard.Hunt; m++ {
		out.Modes = append(out.Modes, m.String())
	}
	out.Counts = map[string]uint64{
		"guarded":      st.Guarded,
		"unguarded":    st.Unguarded,
		"skipped":      st.Skipped,
		"isolated":     st.Isolated,
		"not_isolated": st.NotIsolated,
		"verified":     st.Verified,
		"unchecked":    st.Unchecked,
		"findings":     st.Findings,
		"relieved":     st.Relieved,
		"evicted":      st.Evicted,
		"retried":      st.Retried,
		"given_up":     st.GivenUp.Blocks,
		"captured":     st.Captured,
		"delays":       st.Delays,
	}
	out.Levels = map[string]uint64{
		"checks":        st.Checks,
		"ledger_blocks": st.Known,
		"tombstones":    st.Tombstones,
		// Two names are older than the words: boards and alerts go by them.
		"deferred":    st.BlockedFrees.Blocks,
		"sentinels":   st.Canaries.Blocks,
		"hunted_tags": uint64(len(r.guard.HuntedTags())),
	}
	return out
}

// GuardChange says what to change of the debug guard's setting. What is nil
// stays as it is.
type GuardChange struct {
	// Mode is what [Config.Guard] takes.
	Mode *GuardMode `json:"mode,omitempty"`
	// SampleBytes is the mean number of bytes between guarded blocks in mode
	// sample. Without it a mode "sample" takes the mean of the configuration.
	SampleBytes *uint64 `json:"sample_bytes,omitempty"`
	// HuntTags are all tags to be hunted; an empty list is none.
	HuntTags *[]core.Tag `json:"hunt_tags,omitempty"`
}

// maxHuntTags bounds the tags that each allocation is compared with.
const maxHuntTags = 64

func (c GuardChange) check() (setting *debugguard.Setting, err error) {
	bad := func(field, reason string) error {
		return &core.InvalidRequestError{Op: "SwitchGuard", Field: field, Reason: reason}
	}
	if c.Mode != nil {
		s, err := debugguard.ParseMode(string(*c.Mode))
		if e, ok := errors.AsType[*core.InvalidRequestError](err); ok {
			return nil, bad("mode", e.Reason)
		}
		setting = &s
	}
	switch {
	case c.SampleBytes != nil && *c.SampleBytes == 0:
		return nil, bad("sample_bytes", "0: say 1 or more, or mode=off")
	case c.SampleBytes != nil && setting != nil && setting.SampleBytes > 0 && setting.SampleBytes != *c.SampleBytes:
		return nil, bad("sample_bytes", fmt.Sprintf("%d, and the mode says %d: say one of them", *c.SampleBytes, setting.SampleBytes))
	case c.HuntTags != nil && len(*c.HuntTags) > maxHuntTags:
		return nil, bad("hunt_tags", fmt.Sprintf("%d tags: say at most %d", len(*c.HuntTags), maxHuntTags))
	case c.HuntTags != nil && slices.Contains(*c.HuntTags, ""):
		return nil, bad("hunt_tags", `an empty tag: blocks without a tag have "untagged"`)
	}
	return setting, nil
}

// SwitchGuard changes the guard's setting while the program runs; see
// [debugguard.Resource.Apply] for what that costs. A change that makes no
// sense is a [core.InvalidRequestError] and changes nothing. Any other error
// says which frees failed as the guard gave up its quarantine: the change is
// made all the same. Once Close has begun the error matches [core.ErrClosed].
func (r *Runtime) SwitchGuard(ctx context.Context, c GuardChange) error {
	if r == nil {
		return r.refuseClosed("SwitchGuard")
	}
	setting, err := c.check()
	if err != nil {
		return err
	}
	if err := r.refuseClosed("SwitchGuard"); err != nil {
		return err
	}
	return r.guard.Change(ctx, debugguard.Change{Setting: setting, SampleBytes: c.SampleBytes, HuntTags: c.HuntTags})
}

// guardSwitch is the guard as operators see it.
func (r *Runtime) guardSwitch() operators.Guard {
	return operators.Guard{
		Status: func() any { return r.GuardStatus() },
		Switch: func(ctx context.Context, c operators.GuardChange) error {
			return r.SwitchGuard(ctx, GuardChange{(*GuardMode)(c.Mode), c.SampleBytes, c.HuntTags})
		},
	}
}

// GuardHandler is an HTTP endpoint that shows the debug guard and switches it.
//
// GET answers with [GuardStatus] as JSON. POST and PUT change what the request
// names, and answer with the status after it: fields mode, sample_bytes and
// hunt_tags, as the JSON of [GuardChange] or as a form or query, where
// hunt_tags may be given several times or with commas (a tag that holds one needs
// JSON), and empty is none. A change that makes no sense is refused with 400 and
// the words to use. One that is not made within 20 seconds, because the device does not answer, is answered
// with 503, and may be made later; one of a runtime that is closed is answered with 503, too.
//
// A change is taken from this machine alone: the peer's address must be a
// loopback address, the Host header a loopback address or localhost (a web page
// that had its name rebound to this machine has another), and a browser must
// not say that the request comes from another site. Everything else is refused
// with 403. Any client that may connect to a loopback port of this machine may switch the
// guard: mount it where that is right.
func (r *Runtime) GuardHandler() http.Handler { return r.guardSwitch() }

func (r *Runtime) guardConfig(cfg Config, limit uint64) (debugguard.Config, error) {
	g := cfg.GuardConfig
	setting, err := debugguard.ParseMode(string(cfg.Guard))
	if err != nil {
		return g, err
	}
	g.Mode, g.Findings, g.Advanced.OnStack = setting.Mode, r.reporter.Report, r.allocations.Sampled
	if cfg.Patience != 0 {
		g.Advanced.Patience = cfg.Patience
	}
	if cfg.TracerProvider != nil && cfg.TraceLevel != telemetry.LevelOff {
		g.Advanced.Span = telemetry.SpanIn
		g.Advanced.BeginStep = telemetry.Steps(telemetry.Config{TracerProvider: cfg.TracerProvider, Level: cfg.TraceLevel}, r.driver.Ordinal())
	}
	g.Advanced.Refuse = g.Advanced.Refuse || cfg.GuardPolicy == PolicyRefuse
	if setting.SampleBytes > 0 {
		g.SampleBytes = setting.SampleBytes
	}
	g.Advanced.Hunt.Bisect = g.Advanced.Hunt.Bisect || setting.Bisect
	g.Advanced.Hunt.Unmap = g.Advanced.Hunt.Unmap || setting.Unmap
	if setting.Delay && g.Advanced.Hunt.Delay == 0 {
		g.Advanced.Hunt.Delay = debugguard.DefaultDelay
	}
	if !cfg.inBackground() {
		g.Advanced.UpkeepInterval = -1
	}
	// Quarantine is charged against the budget: sized by a large device it would fill a small one.
	_, total, err := r.driver.MemInfo()
	if err != nil {
		return g, err
	}
	g.Advanced.Memory = min(total, limit)
	if r.ops, err = cuda.NewDeviceOps(r.driver, r.streams, guardkernels.Image()); err != nil {
		return g, err
	}
	r.onClose(func(ctx context.Context) error { return deadline.Within(ctx, func() error { return r.ops.Close(ctx) }) })
	g.Device = r.ops
	return g, nil
}
