package replay

import (
	"context"
	"errors"
	"maps"
	"slices"
)

// finish takes the final readings, frees what the trace left live and gives
// the leases back.
func (p *player) finish(ctx context.Context) error {
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
	for _, h := range left[:min(len(left), maxLeftLive)] {
		p.report.LeftLive = append(p.report.LeftLive, Left{Line: h.row.Line, Bytes: h.row.Bytes, Stream: h.row.Stream})
	}
}
