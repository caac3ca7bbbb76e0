// Package fit says what a recorded program needs on a machine: it plays the recording through the real stack on a
// simulated device with the machine's memory.
package fit

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
	"github.com/fencepost-gpu/fencepost/internal/traceio/replay"
)

// MostMemory is the most bytes that a machine may have.
const MostMemory = 1 << 40

// Machine is what a recording is to run on.
type Machine struct {
	// Memory is how many bytes of the device the program may have; 0 is as many as it takes.
	Memory uint64
	// Resource and Guard are those of [fencepost.Config]. An empty Guard adds nothing to the recording: a log's blocks
	// have the sizes that the device was asked for, with the padding of the guard that was there.
	Resource fencepost.Backend
	Guard    fencepost.GuardMode
	// Jobs lets the recorded jobs in by their peaks, so many at once at most, and moves what they did to when they are
	// in. 0 plays everything when it was recorded.
	Jobs int
	// Resident is how many bytes are live all along that the recording lacks; see [Resident].
	Resident uint64
	// Device is whose part of the recording is played, by its number; -1 is the only one that it has.
	Device int
}

// Report is what the machine would see. Sizes are bytes.
type Report struct {
	File     string `json:"file"`
	Format   string `json:"format"`
	Resource string `json:"resource"`
	// Memory is the machine's, 0 if it was not said.
	Memory uint64 `json:"memory_bytes"`
	// Guard is the guard that was played: the machine's, or else [Recorded] or [RecordedSample].
	Guard string `json:"guard"`
	// Fits: Memory is at least Needs. Margin is Memory less Needs.
	Fits   bool  `json:"fits"`
	Margin int64 `json:"margin_bytes"`
	// A limit of Needs refuses nothing. The smallest such memory lies between NeedsLeast and Needs,
	// because runs differ: a guard chooses blocks by chance, and the device is more or less behind.
	//   - NeedsLeast is found by bisection, to Within, of replays without either.
	//   - On Needs, and on a hundredth less, none of the Plays was refused anything.
	//
	// With the direct backend and no such guard they are the same.
	NeedsLeast uint64 `json:"needs_least_bytes"`
	Needs      uint64 `json:"needs_bytes"`
	Within     uint64 `json:"needs_within_bytes"`
	// Plays is how many ways to run the program were played.
	Plays int `json:"plays"`
	// Requests is how many allocations there are. Refused and FirstRefusal are of the play that
	// refused most. Unplayed are allocations of jobs that were refused.
	Requests     uint64 `json:"requests"`
	Refused      uint64 `json:"refused"`
	FirstRefusal string `json:"first_refusal,omitempty"`
	Unplayed     uint64 `json:"unplayed,omitempty"`
	// The peaks are those on Memory; without one on plenty, or on Needs if jobs are let in.
	//   - PeakLive: live as the program asks for it.
	//   - PeakCharged: charged to a budget, with padding, red zones, pending and quarantine.
	//   - PeakReservedLeast to PeakReserved: held of the device, free memory beside blocks
	//     included. With the direct backend, which does not tell, that of the blocks.
	//
	// PeakReserved may exceed Needs: a pool grows before it waits, and a guard keeps what nothing
	// else asks for. It is what the plays held, and no promise.
	PeakLive          uint64 `json:"peak_live_bytes"`
	PeakCharged       uint64 `json:"peak_charged_bytes"`
	PeakReservedLeast uint64 `json:"peak_reserved_least_bytes"`
	PeakReserved      uint64 `json:"peak_reserved_bytes"`
	// LowerBounds: the recording lacks some of its program, so all of this may be more. Earlier is how much of what was live
	// before it is known, and counted from its beginning. Failed are requests that were refused when it was recorded: they are not played.
	LowerBounds bool `json:"lower_bounds"`
	// Uncertain: the recording is a process's history and may have lost frees too, so that all of this may be less.
	Uncertain bool `json:"uncertain"`
	// Quarantined is how much of PeakLive may have been in quarantine. If a guard chooses blocks by
	// chance, the recording has a block's free where the guard let the block go. The lower ends are
	// less by that.
	Quarantined uint64 `json:"recorded_quarantine_bytes,omitempty"`
	Earlier     uint64 `json:"earlier_bytes"`
	Failed      uint64 `json:"recorded_failures"`
	// Jobs is nil if the recording has none.
	Jobs   *Jobs `json:"jobs,omitempty"`
	course course
}

// Predict plays the trace. It takes a dozen replays, of some microseconds a row, and some thirty
// more where runs differ. Errors are those of the stack, [core.InvalidRequestError] for an
// impossible machine, and ctx's. It blocks until it has played all, or ctx ends.
func Predict(ctx context.Context, t *alloctrace.Trace, m Machine) (*Report, error) {
	if m.Memory > 0 && m.Memory < sim.Granule || m.Memory > MostMemory {
		return nil, invalid("--memory", fmt.Sprintf("%d bytes: say %d to %d", m.Memory, sim.Granule, uint64(MostMemory)))
	}
	t, err := of(t, m.Device)
	if err != nil {
		return nil, err
	}
	p := &plan{trace: t, machine: m}
	p.rows, p.earlierBlocks, p.earlierBytes = complete(t)
	if m.Resident > 0 {
		p.rows = slices.Insert(p.rows, 0, alloctrace.Row{Action: alloctrace.Allocate, Bytes: m.Resident, Time: p.rows[0].Time, Stream: math.MaxUint64, Generation: math.MaxUint64, Tag: "resident", Device: p.rows[0].Device})
	}
	if p.jobs, err = jobsOf(t.Jobs, p.rows); err != nil {
		return nil, err
	}
	if m.Jobs > 0 && p.jobs == nil {
		return nil, invalid("--jobs", "the history has no records of jobs: runtimes log them whose work runs in Runtime.Do")
	}
	return p.predict(ctx)
}

// plan is a trace with a machine.
type plan struct {
	trace   *alloctrace.Trace
	machine Machine
	rows    []alloctrace.Row
	jobs    *jobs
	// earlierBlocks were live before the recording, and the sizes of some are known.
	earlierBlocks, earlierBytes uint64
	// least and others are its plays. sampled says that a guard draws in some; plenty is a memory
	// on which all fit.
	least   play
	others  []play
	sampled bool
	plenty  uint64
}

// outcome is what a memory comes to.
type outcome struct {
	report   *replay.Report
	stats    core.Stats
	admitted admitted
	course   course
	peakLive uint64
}

func (o *outcome) fits() bool { return o.report.Refusals == 0 && o.admitted.refused == 0 }

// holds is the most that was held of the device.
func (o *outcome) holds() uint64 {
	if o.report.PeakReserved == 0 { // there is no pool
		return o.stats.PeakBytes
	}
	return o.report.PeakReserved + o.stats.IsolatedHigh
}

func (p *plan) predict(ctx context.Context) (*Report, error) {
	p.choosePlays()
	enough, err := p.enough(ctx)
	if err != nil {
		return nil, err
	}
	r := &Report{File: p.trace.Name, Format: p.trace.Format.String(), Resource: enough.report.Resource,
		Memory: p.machine.Memory, Plays: 1 + len(p.others),
		LowerBounds: enough.report.LowerBounds || p.earlierBlocks > 0 || p.trace.Holes != alloctrace.NoHoles,
		Uncertain:   p.trace.Holes == alloctrace.UnknownHoles,
		Earlier:     p.earlierBytes + p.machine.Resident, Failed: enough.report.RecordedFailures, Guard: p.guard()}
	asked, at := p.machine.Memory, enough
	if asked > 0 {
		if at, err = p.try(ctx, asked, p.least); err != nil {
			return nil, err
		}
	}
	hint := at
	if len(p.others) > 0 {
		hint = nil // the answer is the same whatever memory was asked about
	}
	if r.NeedsLeast, r.Within, err = p.needs(ctx, enough, hint); err != nil {
		return nil, err
	}
	if r.Needs, err = p.promise(ctx, r.NeedsLeast); err != nil {
		return nil, err
	}
	if p.machine.Guard == "" && p.sampled {
		r.Quarantined = quarantined(p.rows)
		r.NeedsLeast -= min(r.Quarantined/sim.Granule*sim.Granule, r.NeedsLeast-sim.Granule)
	}
	memory := asked
	switch {
	case asked == 0 && p.machine.Jobs > 0: // jobs wait there, so that less is live at once
		memory = r.Needs
		if at, err = p.try(ctx, memory, p.least); err != nil {
			return nil, err
		}
	case asked == 0:
		memory = p.plenty
	}
	fits, err := p.spread(ctx, r, memory, at)
	if err != nil {
		return nil, err
	}
	switch {
	case asked >= r.Needs && !fits: // a rare play
		if r.Needs, err = p.promise(ctx, granules(asked+1)); err != nil {
			return nil, err
		}
	case fits && asked < r.Needs && asked >= r.NeedsLeast+2*sim.Granule: // a promise from here may hold, too
		if fits, err = p.allFit(ctx, asked-cushion(asked)); err != nil {
			return nil, err
		}
		if fits || asked+cushion(asked)/2 >= r.Needs {
			r.Needs = asked
		}
	}
	if asked > 0 {
		r.Margin = int64(asked) - int64(r.Needs)
	}
	r.PeakReservedLeast -= min(r.Quarantined, r.PeakReservedLeast)
	r.Fits = asked == 0 || r.Margin >= 0
	r.Unplayed = enough.report.Allocations - at.report.Allocations
	r.Jobs = p.jobs.report(at.admitted, p.machine.Jobs)
	return r, nil
}

// spread makes all plays on so much memory, of which at is the least one, and reports whether each
// fits.
func (p *plan) spread(ctx context.Context, r *Report, memory uint64, at *outcome) (fits bool, err error) {
	r.Requests, r.PeakLive, r.course = at.report.Allocations, at.peakLive, at.course
	r.PeakReservedLeast, fits = math.MaxUint64, true
	for i := 0; ; i++ {
		fits = fits && at.fits()
		if at.report.Refusals > r.Refused {
			r.Refused, r.FirstRefusal = at.report.Refusals, at.report.FirstRefusal
		}
		if i == 0 || !p.others[i-1].lags { // how long frees are pending is the play's and not the program's
			r.PeakCharged = max(r.PeakCharged, at.stats.PeakOutstanding)
		}
		r.PeakReserved, r.PeakReservedLeast = max(r.PeakReserved, at.holds()), min(r.PeakReservedLeast, at.holds())
		if i == len(p.others) {
			return fits, nil
		}
		if at, err = p.try(ctx, memory, p.others[i]); err != nil {
			return false, err
		}
	}
}

// enough plays on a device that has enough.
func (p *plan) enough(ctx context.Context) (*outcome, error) {
	live, _ := peak(p.rows, nil)
	for memory := min(MostMemory, 4*min(live, MostMemory)+1<<30); ; memory = min(MostMemory, 4*memory) {
		o, err := p.try(ctx, memory, p.least)
		if p.plenty = memory; err != nil || o.fits() {
			return o, err
		}
		if memory == MostMemory {
			return nil, invalid("history", fmt.Sprintf("it has %d bytes live at once, more than a simulated device can: %s", live, o.report.FirstRefusal))
		}
	}
}

// needs is the smallest memory on which the least play is refused nothing, and how much smaller it
// may be. at is nil, or the outcome on the memory that was asked about, with which the answer
// agrees.
func (p *plan) needs(ctx context.Context, enough, at *outcome) (memory, within uint64, err error) {
	low, high := enough.peakLive, granules(enough.holds())
	if p.machine.Jobs > 0 {
		low = p.jobs.least()
	}
	asked := p.machine.Memory
	switch {
	case at == nil || asked == 0:
	case at.fits():
		high = min(high, granules(min(at.holds(), asked)), asked)
	default:
		low = max(low, asked)
	}
	low = granules(max(1, low)) - sim.Granule
	for { // what serves in a larger memory may be a little too little
		o, err := p.try(ctx, max(high, sim.Granule), p.least)
		if err != nil {
			return 0, 0, err
		}
		if o.fits() {
			break
		}
		low, high = max(low, high), granules(high+high/16+1)
	}
	step := max(sim.Granule, granules(high/1000))
	for low+step < high {
		middle := granules(low + (high-low)/2)
		o, err := p.try(ctx, max(middle, sim.Granule), p.least)
		if err != nil {
			return 0, 0, err
		}
		if o.fits() {
			high = middle
		} else {
			low = middle
		}
	}
	if at != nil && asked > 0 && at.fits() {
		high = min(high, asked)
	}
	return max(high, sim.Granule), step, nil
}

// promise is the first memory, from least on, on which no play is refused anything. Random plays
// are a sample of what may happen, so it adds a cushion.
func (p *plan) promise(ctx context.Context, least uint64) (memory uint64, err error) {
	if len(p.others) == 0 {
		return least, nil
	}
	for memory = granules(least); ; memory = granules(memory + memory/400 + 1) {
		fits, err := p.allFit(ctx, memory)
		if err != nil {
			return 0, err
		}
		if most := granules(memory + cushion(memory)); fits {
			if fits, err = p.allFit(ctx, most); err != nil || fits {
				return most, err
			}
		}
		if memory >= MostMemory {
			return 0, invalid("history", "a simulated device that serves it has too much memory")
		}
	}
}

// cushion is a hundredth: about the difference between the best and the worst of many draws on
// recorded programs. It also covers what the pool does by this machine's clock: it grows faster if
// it grew just before.
func cushion(memory uint64) uint64 { return max(memory/100, 2*sim.Granule) }

// allFit reports whether no play is refused anything.
func (p *plan) allFit(ctx context.Context, memory uint64) (bool, error) {
	for _, one := range append([]play{p.least}, p.others...) {
		if o, err := p.try(ctx, memory, one); err != nil || !o.fits() {
			return false, err
		}
	}
	return true, nil
}

// granules rounds up to what a device's memory is a multiple of.
func granules(bytes uint64) uint64 {
	return (min(bytes, MostMemory) + sim.Granule - 1) / sim.Granule * sim.Granule
}

// peak is the most bytes that the rows have live at once, of those that may says yes to, and how many they leave live.
func peak(rows []alloctrace.Row, may func(i int) bool) (most, live uint64) {
	sizes := map[alloctrace.Key]uint64{}
	for i := range rows {
		row := &rows[i]
		switch {
		case row.IsEmpty() || row.Action == alloctrace.AllocateFailure:
		case row.Action == alloctrace.Free:
			live -= sizes[row.Key()]
			delete(sizes, row.Key())
		case may == nil || may(i):
			bytes := min(row.Bytes, math.MaxUint64-live) // hostile ones add up to more than there is
			sizes[row.Key()] += bytes
			live += bytes
			most = max(most, live)
		}
	}
	return most, live
}

func invalid(field, reason string) error {
	return &core.InvalidRequestError{Op: "fit", Field: field, Reason: reason}
}

// of is the part of a trace that is one device's.
func of(t *alloctrace.Trace, device int) (*alloctrace.Trace, error) {
	devices := map[int]bool{}
	for i := range t.Rows {
		devices[t.Rows[i].Device] = true
	}
	names := slices.Sorted(maps.Keys(devices))
	switch {
	case len(names) == 0:
		return nil, invalid("history", "it has no allocation")
	case device < 0 && len(names) > 1, device >= 0 && !devices[device]:
		return nil, invalid("--ordinal", fmt.Sprintf("the history is of the devices %v: say which of them", names))
	case len(names) == 1:
		return t, nil
	}
	part := *t
	part.Rows = slices.DeleteFunc(slices.Clone(t.Rows), func(r alloctrace.Row) bool { return r.Device != device })
	part.Jobs = slices.DeleteFunc(slices.Clone(t.Jobs), func(j alloctrace.Job) bool { return j.Device != device })
	return &part, nil
}

// complete is the trace's rows with the allocations of what was live before, which has only its frees there; it
// says how many blocks that are, and how many bytes. They come first, or where the trace begins to tell of their stream, or, if
// they may have come in a hole of it, at the free.
func complete(t *alloctrace.Trace) (rows []alloctrace.Row, blocks, bytes uint64) {
	seen, begins, before := map[alloctrace.Key]bool{}, map[alloctrace.StreamKey]int{}, map[int][]alloctrace.Row{}
	for i, row := range t.Rows {
		at := i
		switch stream := row.StreamKey(); t.Holes {
		case alloctrace.NoHoles:
			at = 0
		case alloctrace.UnknownHoles:
			if _, ok := begins[stream]; !ok {
				begins[stream] = i
			}
			at = begins[stream]
		}
		if row.Action == alloctrace.AllocateFailure || row.IsEmpty() {
			continue
		}
		if row.Action == alloctrace.Free && !seen[row.Key()] {
			blocks++
			if row.Bytes > 0 {
				bytes += row.Bytes
				row.Action, row.Time = alloctrace.Allocate, t.Rows[at].Time
				before[at] = append(before[at], row)
			}
		}
		seen[row.Key()] = true
	}
	for i := range t.Rows {
		rows = append(append(rows, before[i]...), t.Rows[i])
	}
	return rows, blocks, bytes
}

// Resident is what is live all along and not in the recording, if so many bytes were live at its end. It is an error if the recording
// has so much live then that it must have holes.
func Resident(t *alloctrace.Trace, device int, live uint64) (uint64, error) {
	t, err := of(t, device)
	if err != nil {
		return 0, err
	}
	rows, _, _ := complete(t)
	_, left := peak(rows, nil)
	if left > live+live/4 {
		return 0, invalid("history", fmt.Sprintf("by its records %d bytes are live now, and in truth %d: it has lost the frees of some blocks, as where a process has many streams; play a log (Config.LogSinks)", left, live))
	}
	return live - min(live, left), nil
}
