package batch

import (
	"context"
	"errors"
	"sync"

	"github.com/fencepost-gpu/fencepost/core/deviceops"
	"github.com/fencepost-gpu/fencepost/internal/deadline"
)

// Results is a batch under way whose results are read once.
type Results struct {
	memory  *Memory
	regions int

	mu    sync.Mutex
	table *Table // nil once they were read or discarded
}

var (
	_ deviceops.Verification = (*Results)(nil)
	_ deviceops.Checksums    = (*Results)(nil)
)

// NewResults takes over the table of a batch of so many regions, which m staged with results.
func NewResults(m *Memory, t *Table, regions int) *Results {
	return &Results{memory: m, regions: regions, table: t}
}

// Poll reports whether the device has done the batch.
func (r *Results) Poll() (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.table == nil || r.table.records == 0 {
		return true, nil
	}
	return r.memory.drv.EventQuery(r.table.event)
}

// Wait blocks until the device has done the batch, or ctx ends.
func (r *Results) Wait(ctx context.Context) error { return deadline.Poll(ctx, r.Poll) }

// Discard gives the memory back once the device is done with it.
func (r *Results) Discard() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.table != nil {
		r.memory.Release(r.table)
		r.table = nil
	}
}

// Mismatches reads the results of a comparison and gives the memory back.
func (r *Results) Mismatches() (bad []deviceops.Mismatch, err error) {
	err = r.read(func(table, results []byte) { bad = joinPieces(table, results) })
	return bad, err
}

// Sums reads the results of a checksum and gives the memory back.
func (r *Results) Sums() (sums []uint64, err error) {
	err = r.read(func(table, results []byte) { sums = joinSums(table, results, r.regions) })
	return sums, err
}

// read lets f see table and results of a batch that is done, once, and gives the
// memory back.
func (r *Results) read(f func(table, results []byte)) error {
	done, err := r.Poll()
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.table == nil {
		return errors.New("the results were taken before: they can be had once")
	}
	if !done {
		return errors.New("the batch is still under way: Poll or Wait first")
	}
	f(r.table.table(), r.table.results())
	r.memory.rest(r.table)
	r.table = nil
	return nil
}
