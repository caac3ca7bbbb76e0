// Package replay plays recorded allocation traces through a runtime, in the
// order and on the streams of the recording, and reports what the memory did.
package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/readings"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
)

// Pool reads the books of the memory that the runtime allocates from.
type Pool interface {
	// PoolStats reads the pool.
	PoolStats() (driver.PoolStats, error)
	// Drift returns what the runtime's books have of the pool, less what that has.
	Drift() (readings.Drift, error)
}

// Config says where and how to replay.
type Config struct {
	Runtime *core.Runtime
	Streams *cuda.StreamPool
	// Pool may be nil: reserved bytes and drift are not reported then.
	Pool Pool
	// Speed is how much faster than recorded to go, from [MinSpeed] to
	// [MaxSpeed]: 1 keeps the recorded times. 0 does not wait at all.
	Speed float64
	// Padded plays the sizes that the recorded device was asked for, where they are known.
	Padded bool
	// Allocated, if not nil, is told of each block and of the lease that it was allocated on. Its
	// error ends the replay.
	Allocated func(on *cuda.Lease, b core.Block) error
	// Played, if not nil, is called behind each row.
	Played func(row *alloctrace.Row)
	// Draining, if not nil, is called when the rows are played, and what it
	// returns when the device is done with all frees.
	Draining func() (done func())
}

// The bounds of a speed that is not zero.
const (
	MinSpeed = 1e-3
	MaxSpeed = 1e6
)

// CheckSpeed returns an error for a speed that is none, such as NaN.
func CheckSpeed(speed float64) error {
	if speed == 0 || speed >= MinSpeed && speed <= MaxSpeed {
		return nil
	}
	return fmt.Errorf("a speed of %v: say 0, or %v to %.0f", speed, MinSpeed, MaxSpeed)
}

type player struct {
	cfg    Config
	report *Report
	leases map[alloctrace.StreamKey]*leased
	live   map[alloctrace.Key]held
	// lost are live blocks that no later row can name.
	lost []held
	// refused are blocks that could not be had, so that their frees are not
	// taken for unknown ones.
	refused map[alloctrace.Key]alloctrace.Row
	// empty are a log's allocations of no bytes: their frees free nothing.
	empty map[alloctrace.Key]bool
	// seen are blocks that some row named.
	seen map[alloctrace.Key]bool
	// recorded is what is live by the rows, whether or not it could be had.
	recorded core.Amount
	// lowest and highest are bounds of the recorded addresses.
	lowest, highest uint64
	allocs, frees   []time.Duration
}

type held struct {
	id  core.BlockID
	row alloctrace.Row
}

// Play replays t and frees at the end what the trace left live. A refused
// allocation is counted and does not end the replay; the error is one of the
// stack, or ctx's.
func Play(ctx context.Context, t *alloctrace.Trace, cfg Config) (*Report, error) {
	p := &player{cfg: cfg, leases: map[alloctrace.StreamKey]*leased{}, live: map[alloctrace.Key]held{}, refused: map[alloctrace.Key]alloctrace.Row{},
		empty: map[alloctrace.Key]bool{}, seen: map[alloctrace.Key]bool{}, lowest: math.MaxUint64,
		report: &Report{File: t.Name, Format: t.Format.String(), Resource: cfg.Runtime.String(), LeftLive: []Left{}, Failures: []Failure{}, Findings: map[string]uint64{},
			TooLong: uint64(t.Passed.TooLong), FirstTooLong: t.Passed.FirstTooLong, Cut: t.Passed.Cut, Missing: t.Passed.Missing, LowerBounds: t.Passed.Missing > 0}}
	if err := CheckSpeed(cfg.Speed); err != nil {
		return p.report, err
	}
	start := time.Now()
	err := p.play(ctx, t)
	played := time.Now()
	err = errors.Join(err, p.finish(context.WithoutCancel(ctx)))
	p.report.Seconds, p.report.DrainSeconds = time.Since(start).Seconds(), time.Since(played).Seconds()
	p.report.Latency = map[string]Latency{"allocate": latency(p.allocs), "deallocate": latency(p.frees)}
	return p.report, err
}

func (p *player) play(ctx context.Context, t *alloctrace.Trace) error {
	start := time.Now()
	for i := range t.Rows {
		row := &t.Rows[i]
		if err := p.await(ctx, start, row.Time-t.Rows[0].Time); err != nil {
			return err
		}
		p.report.Events++
		if err := p.row(ctx, row); err != nil {
			return fmt.Errorf("%s:%d: %s: %w", t.Name, row.Line, row.Action, err)
		}
		if p.cfg.Played != nil {
			p.cfg.Played(row)
		}
	}
	return nil
}

// await waits until the row is due.
func (p *player) await(ctx context.Context, start time.Time, offset time.Duration) error {
	if p.cfg.Speed <= 0 {
		return ctx.Err()
	}
	// Slower than recorded, a time may be more than a duration can count.
	at := min(float64(offset)/p.cfg.Speed, math.MaxInt64/2)
	due := time.Duration(at) - time.Since(start)
	if due <= 0 {
		return ctx.Err()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(due):
		return nil
	}
}

func (p *player) row(ctx context.Context, row *alloctrace.Row) error {
	switch {
	case row.Action == alloctrace.AllocateFailure:
		p.recordedFailure(row)
	case p.isEmpty(row):
		p.report.Empty++
	case row.Action == alloctrace.Allocate:
		p.report.Allocations++
		return p.allocate(ctx, row)
	default:
		p.report.Frees++
		return p.free(ctx, row)
	}
	return nil
}

// isEmpty reports whether the row concerns no memory. Of a log, whose frees need
// not tell sizes, the allocation says so.
func (p *player) isEmpty(row *alloctrace.Row) bool {
	key := row.Key()
	if row.Action == alloctrace.Allocate && row.Bytes == 0 {
		p.empty[key] = true
	}
	return row.IsEmpty() || row.Generation != 0 && p.empty[key]
}

func (p *player) allocate(ctx context.Context, row *alloctrace.Row) error {
	lease, err := p.lease(ctx, row.StreamKey())
	if err != nil {
		return err
	}
	if earlier, ok := p.live[row.Key()]; ok {
		p.report.Repeated++
		p.lost = append(p.lost, earlier)
		delete(p.live, row.Key())
	}
	p.seen[row.Key()] = true
	p.recorded = p.recorded.Add(core.Amount{Bytes: row.Bytes, Blocks: 1})
	p.lowest, p.highest = min(p.lowest, row.Pointer), max(p.highest, row.Pointer+row.Bytes)
	tag := core.Tag(row.Tag)
	if tag == "" {
		tag = "replay"
	}
	bytes := row.Bytes
	if p.cfg.Padded {
		bytes = max(bytes, row.Padded)
	}
	began := time.Now()
	b, err := p.cfg.Runtime.Allocate(ctx, core.Request{Bytes: bytes, Stream: lease.ID(), Tag: tag})
	p.allocs = append(p.allocs, time.Since(began))
	if errors.Is(err, core.ErrOutOfBudget) || errors.Is(err, core.ErrOutOfMemory) {
		if p.report.Refusals++; p.report.Refusals == 1 {
			p.report.FirstRefusal = fmt.Sprintf("line %d: %v", row.Line, err)
		}
		p.refused[row.Key()] = *row
		return nil
	}
	if err != nil {
		return err
	}
	delete(p.refused, row.Key())
	p.live[row.Key()] = held{id: b.ID, row: *row}
	if p.cfg.Allocated != nil {
		return p.cfg.Allocated(lease, b)
	}
	return nil
}

func (p *player) free(ctx context.Context, row *alloctrace.Row) error {
	h, ok := p.live[row.Key()]
	if !ok {
		p.freeUnplayed(row)
		return nil
	}
	p.recorded = p.recorded.Sub(core.Amount{Bytes: h.row.Bytes, Blocks: 1})
	began := time.Now()
	_, err := p.cfg.Runtime.Deallocate(ctx, h.id)
	p.frees = append(p.frees, time.Since(began))
	if err == nil {
		delete(p.live, row.Key())
	}
	return err
}

// freeUnplayed counts a free of a block that the replay does not have. One that
// no row named before was live when the recording began.
func (p *player) freeUnplayed(row *alloctrace.Row) {
	key := row.Key()
	if refused, ok := p.refused[key]; ok {
		p.report.RefusedFrees++
		p.recorded = p.recorded.Sub(core.Amount{Bytes: refused.Bytes, Blocks: 1})
		delete(p.refused, key)
		return
	}
	p.report.UnknownFrees++
	if !p.seen[key] {
		p.seen[key] = true
		p.report.EarlierBlocks++
		p.report.EarlierBytes += row.Bytes
		p.report.LowerBounds = true
	}
}

// recordedFailure notes an allocation that had failed in the recording.
func (p *player) recordedFailure(row *alloctrace.Row) {
	if p.report.RecordedFailures++; p.report.RecordedFailures > maxListed {
		return
	}
	f := Failure{Line: row.Line, Bytes: row.Bytes, Stream: row.Stream,
		Live: p.recorded.Bytes, LiveBlocks: p.recorded.Blocks, LargestFree: p.largestFree(), Error: row.Error}
	f.Text = f.explain()
	p.report.Failures = append(p.report.Failures, f)
}

// largestFree is the largest range among the recorded addresses in which
// nothing is live by the rows.
func (p *player) largestFree() (largest uint64) {
	rows := slices.Collect(maps.Values(p.refused))
	for _, h := range p.live {
		rows = append(rows, h.row)
	}
	for _, h := range p.lost {
		rows = append(rows, h.row)
	}
	slices.SortFunc(rows, func(a, b alloctrace.Row) int { return cmp.Compare(a.Pointer, b.Pointer) })
	at := min(p.lowest, p.highest)
	for _, r := range append(rows, alloctrace.Row{Pointer: p.highest}) {
		if r.Pointer > at {
			largest = max(largest, r.Pointer-at)
		}
		at = max(at, r.Pointer+r.Bytes)
	}
	return largest
}

// finish takes the final readings, frees what the trace left live and gives
// the leases back.
func (p *player) finish(ctx context.Context) error {
	if p.cfg.Draining != nil {
		defer p.cfg.Draining()()
	}
	errs := []error{p.cfg.Runtime.Drain(ctx), p.measure()}
	left := slices.AppendSeq(p.lost, maps.Values(p.live))
	p.listLeftLive(left)
	for _, h := range left {
		_, err := p.cfg.Runtime.Deallocate(ctx, h.id)
		errs = append(errs, err)
	}
	errs = append(errs, p.cfg.Runtime.Drain(ctx), p.measureDrift())
	for _, l := range p.leases {
		errs = append(errs, l.Release())
	}
	return errors.Join(errs...)
}

func (p *player) measure() error {
	stats := p.cfg.Runtime.Stats()
	p.report.PeakLive, p.report.EndLive = stats.PeakRequested, stats.Live.Requested
	return p.measureDrift()
}

// measureDrift compares the books with the pool, while nothing is under way.
func (p *player) measureDrift() error {
	if p.cfg.Pool == nil {
		return nil
	}
	pool, err := p.cfg.Pool.PoolStats()
	if err != nil {
		return err
	}
	p.report.PeakReserved = pool.ReservedHigh
	drift, err := p.cfg.Pool.Drift()
	if drift.Bytes != 0 {
		p.report.Drift = drift.Bytes
	}
	return err
}

func (p *player) listLeftLive(left []held) {
	slices.SortFunc(left, func(a, b held) int { return a.row.Line - b.row.Line })
	p.report.LeftLiveBlocks = uint64(len(left))
	for _, h := range left[:min(len(left), maxListed)] {
		p.report.LeftLive = append(p.report.LeftLive, Left{Line: h.row.Line, Bytes: h.row.Bytes, Stream: h.row.Stream})
	}
}

// leased is the lease that stands for a recorded stream.
type leased struct {
	*cuda.Lease
	used uint64 // the number of the newest event that asked for it
}

// lease returns the stream that stands for a recorded one. Fencepost's own logs
// name leases, of which a service has a new one for each request: when there
// are more than streams, the one that was not used for longest is given back,
// and gets another if it comes again.
func (p *player) lease(ctx context.Context, recorded alloctrace.StreamKey) (*cuda.Lease, error) {
	l, ok := p.leases[recorded]
	if !ok {
		got, err := p.cfg.Streams.TryAcquire(ctx, "replay")
		if errors.Is(err, cuda.ErrNoStream) && len(p.leases) > 0 {
			if err = p.giveBackOldest(); err == nil {
				got, err = p.cfg.Streams.TryAcquire(ctx, "replay")
			}
		}
		if err != nil {
			return nil, fmt.Errorf("a lease for recorded stream %d: %w", recorded.Stream, err)
		}
		l = &leased{Lease: got}
		p.leases[recorded] = l
	}
	l.used = p.report.Events
	return l.Lease, nil
}

func (p *player) giveBackOldest() error {
	var oldest alloctrace.StreamKey
	first := true
	for recorded, l := range p.leases {
		if first || l.used < p.leases[oldest].used {
			oldest, first = recorded, false
		}
	}
	l := p.leases[oldest]
	delete(p.leases, oldest)
	return l.Release()
}
