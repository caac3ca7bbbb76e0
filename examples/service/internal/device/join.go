package device

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/workload"
)

// NoPartner is the joined value of a left row that has no right row. No right
// row may have it as its key or its value.
const NoPartner = workload.NoPartner

// ErrUnjoinable is matched by the error of a join whose right rows do not make
// a table: a key occurs twice with different values, or more keys than the
// kernel searches fall on one place.
var ErrUnjoinable = errors.New("the right rows cannot be joined")

// Tables are the two sides of a join: every left key looks for the right row
// of the same key.
type Tables struct {
	Left, RightKeys, RightValues []uint32
}

// slots is the size of the hash table: a power of two, and at most half full.
func (t Tables) slots() int {
	slots := 1
	for slots < 2*len(t.RightKeys) {
		slots *= 2
	}
	return slots
}

// JoinBytes is the device memory that a join takes.
func JoinBytes(t Tables) uint64 { return t.words() * wordBytes }

func (t Tables) words() uint64 {
	return 2*uint64(len(t.Left)) + 3*uint64(len(t.RightKeys)) + workload.SlotWords*uint64(t.slots())
}

// Check returns the error that Join would return for these tables whatever the
// device holds; it matches [core.ErrInvalidRequest].
func (t Tables) Check() error {
	if len(t.RightKeys) != len(t.RightValues) {
		return &core.InvalidRequestError{Op: "Join", Field: "right", Reason: fmt.Sprintf("%d keys and %d values: there must be as many of both", len(t.RightKeys), len(t.RightValues))}
	}
	for i, k := range t.RightKeys {
		if k == NoPartner || t.RightValues[i] == NoPartner {
			return &core.InvalidRequestError{Op: "Join", Field: "right", Reason: fmt.Sprintf("row %d: %d is no key and no value here, it stands for no partner", i, NoPartner)}
		}
	}
	return checkRows("Join", len(t.Left), len(t.RightKeys))
}

// Join returns, for each left key, the value of the right row with that key,
// or [NoPartner]. The table is built on one stream while the left keys are
// copied on another. It waits and fails like [Engine.Sort32]; the error
// matches [ErrUnjoinable] or [core.ErrInvalidRequest] if the tables are at
// fault.
func (e *Engine) Join(ctx context.Context, t Tables) (joined []uint32, err error) {
	if err := t.Check(); err != nil {
		return nil, err
	}
	joined = make([]uint32, len(t.Left))
	if len(t.Left) == 0 || len(t.RightKeys) == 0 {
		for i := range joined {
			joined[i] = NoPartner
		}
		return joined, nil
	}
	j, err := e.begin(ctx, joinTag, t.words(), 2)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, j.end(ctx)) }()
	probing, building := j.streams[0], j.streams[1]
	table, stored, err := j.build(ctx, building, t)
	if err != nil {
		return nil, err
	}
	if err := j.probe(ctx, probing, table, t.Left, joined); err != nil {
		return nil, err
	}
	if err := errors.Join(j.wait(ctx, building), j.wait(ctx, probing)); err != nil {
		return nil, err
	}
	return joined, t.verify(stored)
}

// build makes the hash table of the right rows, and looks each of them up in
// it: stored is what was found, when the stream is done.
func (j *job) build(ctx context.Context, on *cuda.Lease, t Tables) (table *column, stored []uint32, err error) {
	k, rows := j.engine.kernels, len(t.RightKeys)
	if table, err = j.alloc(ctx, on, workload.SlotWords*t.slots()); err != nil {
		return nil, nil, err
	}
	keys, err := j.upload(ctx, on, t.RightKeys)
	if err != nil {
		return nil, nil, err
	}
	values, err := j.upload(ctx, on, t.RightValues)
	if err != nil {
		return nil, nil, err
	}
	if err := j.launch(ctx, on, k.Clear, workload.Rows(table.Len()), nil, []*column{table}, table.Arg(), driver.U32(uint32(table.Len()))); err != nil {
		return nil, nil, err
	}
	if err := j.launch(ctx, on, k.Build, workload.Rows(rows), []*column{keys, values, table}, []*column{table},
		keys.Arg(), values.Arg(), table.Arg(), driver.U32(uint32(rows)), mask(table)); err != nil {
		return nil, nil, err
	}
	stored = make([]uint32, rows)
	return table, stored, j.lookUp(ctx, on, table, keys, stored)
}

// probe looks the left keys up. Its stream waits for the building of the table
// because the runtime knows who wrote that.
func (j *job) probe(ctx context.Context, on *cuda.Lease, table *column, left, joined []uint32) error {
	keys, err := j.upload(ctx, on, left)
	if err != nil {
		return err
	}
	return j.lookUp(ctx, on, table, keys, joined)
}

// lookUp copies the value of each key to the host.
func (j *job) lookUp(ctx context.Context, on *cuda.Lease, table, keys *column, to []uint32) error {
	found, err := j.alloc(ctx, on, len(to))
	if err != nil {
		return err
	}
	if err := j.launch(ctx, on, j.engine.kernels.Probe, workload.Rows(len(to)), []*column{keys, table}, []*column{found},
		keys.Arg(), table.Arg(), found.Arg(), driver.U32(uint32(len(to))), mask(table)); err != nil {
		return err
	}
	return cuda.CopyToHost(ctx, to, found, on.ID())
}

func mask(table *column) driver.Arg {
	return driver.U32(uint32(table.Len()/workload.SlotWords - 1))
}

// verify compares what the table holds of the right rows with the rows. The
// kernel gives up on a row that it finds no place for, without a word.
func (t Tables) verify(stored []uint32) error {
	for i, v := range stored {
		if v != t.RightValues[i] {
			return fmt.Errorf("%w: of key %d the table holds another row, or none: give each key once, and keys that differ in their lower bits", ErrUnjoinable, t.RightKeys[i])
		}
	}
	return nil
}
