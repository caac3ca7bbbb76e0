package guardcost

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
)

// Work is something to be timed. It is used by one goroutine.
type Work interface {
	// Name says what it is, in a few words.
	Name() string
	// Run does n units. What it enqueued may be under way when it returns.
	Run(ctx context.Context, n int) error
	// Check judges what the last Run left, when the device is idle.
	Check() error
}

// Config says how thoroughly to compare.
type Config struct {
	// Pairs is how many pairs of sides are timed, at least 1.
	Pairs int
	// Side is how long one side takes at least with the guard off.
	Side time.Duration
}

// off is the tier that the others are compared to.
const off = "off"

// maxUnits bounds the units of a side.
const maxUnits = 1 << 20

// Tiers are the tiers of the guard whose cost is of interest, as
// [debugguard.ParseMode] spells them. The first is the guard switched off, which is
// what the others are compared to.
func Tiers() []string { return []string{"off", "ledger", "sample", "sample:1", "hunt", "hunt:bisect"} }

// Apply switches a guard to a tier while it runs. Errors are those of
// [debugguard.ParseMode] and of [debugguard.Resource.Apply].
func Apply(ctx context.Context, guard *debugguard.Resource, tier string) error {
	setting, err := debugguard.ParseMode(tier)
	if err != nil {
		return err
	}
	return guard.Apply(ctx, setting)
}

// Compare times work on rt under each tier, in pairs with the guard
// switched off. It leaves the guard off. Any finding and any wrong result is
// an error: a guard that fails costs what it likes.
func Compare(ctx context.Context, rt *fencepost.Runtime, work Work, tiers []string, cfg Config) ([]Result, error) {
	if cfg.Pairs < 1 {
		return nil, fmt.Errorf("%d pairs: say 1 or more", cfg.Pairs)
	}
	c := &comparison{rt: rt, work: work}
	if err := c.calibrate(ctx, cfg.Side); err != nil {
		return nil, fmt.Errorf("%s: %w", work.Name(), err)
	}
	var results []Result
	for _, tier := range tiers {
		r, err := c.pairs(ctx, tier, cfg.Pairs)
		if err != nil {
			return results, fmt.Errorf("%s, guard %s: %w", work.Name(), tier, err)
		}
		results = append(results, r)
	}
	return results, Apply(ctx, rt.Guard(), off)
}

type comparison struct {
	rt    *fencepost.Runtime
	work  Work
	units int
}

// side is one timed run: host is the part of it after which the host had
// enqueued everything.
type side struct{ total, host time.Duration }

// calibrate finds how many units a side needs. The first side only warms up.
func (c *comparison) calibrate(ctx context.Context, target time.Duration) error {
	c.units = 1
	if _, err := c.side(ctx, off); err != nil {
		return err
	}
	for ; ; c.units *= 2 {
		s, err := c.side(ctx, off)
		if err != nil {
			return err
		}
		if s.total >= target || c.units >= maxUnits {
			return nil
		}
		if s.total >= target/4 { // near enough to tell
			c.units = min(maxUnits, int(float64(c.units)*float64(target)/float64(s.total))+1)
			return nil
		}
	}
}

// pairs times a tier, after one side of it that only warms up.
func (c *comparison) pairs(ctx context.Context, tier string, n int) (Result, error) {
	if _, err := c.side(ctx, tier); err != nil {
		return Result{}, err
	}
	before := c.rt.Guard().GuardStats()
	var with, without []side
	for i := range n {
		order := []string{off, tier}
		if i%2 == 1 {
			order = []string{tier, off}
		}
		for at, tier := range order {
			timed, err := c.side(ctx, tier)
			if err != nil {
				return Result{}, err
			}
			if at == i%2 {
				without = append(without, timed)
			} else {
				with = append(with, timed)
			}
		}
	}
	r := summarise(with, without)
	after := c.rt.Guard().GuardStats()
	r.Work, r.Guard, r.Units = c.work.Name(), tier, c.units
	r.Guarded, r.Verified, r.Unchecked = after.Guarded-before.Guarded, after.Verified-before.Verified, after.Unchecked-before.Unchecked
	return r, nil
}

// side switches the guard, runs the units to their very end and times that.
func (c *comparison) side(ctx context.Context, tier string) (timed side, err error) {
	if err := errors.Join(Apply(ctx, c.rt.Guard(), tier), c.settle(ctx)); err != nil {
		return side{}, err
	}
	began := time.Now()
	if err := c.work.Run(ctx, c.units); err != nil {
		return side{}, err
	}
	timed.host = time.Since(began)
	if err := c.settle(ctx); err != nil {
		return side{}, err
	}
	timed.total = time.Since(began)
	if n := c.rt.Findings().Total(); n > 0 {
		return side{}, fmt.Errorf("%d findings in a clean program, such as %v", n, c.rt.Findings().Recent()[0])
	}
	return timed, c.work.Check()
}

// settle waits until the device is idle and nothing is held back. Draining
// looks again after a pause, which is too coarse to be timed, so the driver is
// asked to wait first.
func (c *comparison) settle(ctx context.Context) error {
	return errors.Join(c.rt.Guard().Flush(ctx), c.rt.Driver().Synchronize(), c.rt.Drain(ctx))
}
