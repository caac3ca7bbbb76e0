package cuda

import (
	"context"
	"errors"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
)

// resultBatch is a batch under way whose results somebody will read; they lie
// behind the regions in the staging memory.
type resultBatch struct {
	ops *DeviceOps

	mu      sync.Mutex
	staging *staging
}

// Poll reports whether the device has done the batch.
func (b *resultBatch) Poll() (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.staging == nil || b.staging.records == 0 {
		return true, nil
	}
	return b.ops.drv.EventQuery(b.staging.event)
}

// Wait blocks until the device has done the batch, or ctx ends.
func (b *resultBatch) Wait(ctx context.Context) error { return poll(ctx, b.Poll) }

// Discard gives the memory back once the device is done with it.
func (b *resultBatch) Discard() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.staging != nil {
		b.ops.memory.park(b.staging)
		b.staging = nil
	}
}

// results lets read see table and results of a batch that is done, once, and
// gives the memory back.
func (b *resultBatch) results(read func(table, results []byte)) error {
	done, err := b.Poll()
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.staging == nil {
		return errors.New("the results were taken before: they can be had once")
	}
	if !done {
		return errors.New("the batch is still under way: Poll or Wait first")
	}
	read(b.staging.table(), b.staging.results())
	b.ops.memory.rest(b.staging)
	b.staging = nil
	return nil
}

// verification is a batch of comparisons.
type verification struct{ *resultBatch }

// Mismatches reads the results and gives the memory back.
func (v verification) Mismatches() (bad []core.Mismatch, err error) {
	err = v.results(func(table, results []byte) { bad = joinPieces(table, results) })
	return bad, err
}

// checksums is a batch of n sums.
type checksums struct {
	*resultBatch
	n int
}

// Sums reads the results and gives the memory back.
func (c checksums) Sums() (sums []uint64, err error) {
	err = c.results(func(table, results []byte) { sums = joinSums(table, results, c.n) })
	return sums, err
}
