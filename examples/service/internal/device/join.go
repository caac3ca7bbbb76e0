package device

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/examples/service/kernels"
)

// NoPartner is the joined value of a left row that has no right row. No right
// row may have it as its key or its value.
const NoPartner = kernels.NoPartner

// ErrUnjoinable is matched by the error of a join whose right rows do not make
// a table: a key occurs twice with different values, or more keys than the
// kernel searches fall on one place.
var ErrUnjoinable = errors.New("the right rows cannot be joined")

// Tables are the two sides of a join: every left key looks for the right row
// of the same key.
type Tables struct {
	Left, RightKeys, RightValues []uint32
}

// JoinBytes is the device memory that a join takes.
func JoinBytes(t Tables) uint64 {
	return wordBytes * (2*uint64(len(t.Left)) + 3*uint64(len(t.RightKeys)) + kernels.SlotWords*uint64(kernels.Slots(len(t.RightKeys))))
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
// copied on another, if two are free. It waits and fails like [Engine.Sort]; the error
// matches [ErrUnjoinable] or [core.ErrInvalidRequest] if the tables are at
// fault.
func (e *Engine) Join(ctx context.Context, t Tables) (joined []uint32, err error) {
	if err := t.Check(); err != nil {
		return nil, err
	}
	if len(t.Left) == 0 || len(t.RightKeys) == 0 {
		return slices.Repeat([]uint32{NoPartner}, len(t.Left)), nil
	}
	var stored []uint32 // of the right rows what is found of them
	err = e.do(ctx, "service.join", JoinBytes(t), func(probing *fencepost.Job) error {
		building, err := probing.Fork()
		if err != nil {
			return err
		}
		table, right, err := e.build(building, t)
		if err != nil {
			return err
		}
		left, err := fencepost.Upload(probing, t.Left)
		if err != nil {
			return err
		}
		// From here on the stream waits for the table: the runtime knows who wrote it.
		found, err := e.lookUp(probing, table, left)
		if err != nil {
			return err
		}
		if stored, err = fencepost.Download(building, right); err != nil {
			return err
		}
		joined, err = fencepost.Download(probing, found)
		return err
	})
	if err != nil {
		return nil, err
	}
	return joined, t.verify(stored)
}

// build makes the hash table of the right rows, and looks each of them up in
// it.
func (e *Engine) build(j *fencepost.Job, t Tables) (table, found *column, err error) {
	rows := len(t.RightKeys)
	if table, err = fencepost.Alloc[uint32](j, kernels.SlotWords*kernels.Slots(len(t.RightKeys))); err != nil {
		return nil, nil, err
	}
	keys, err := fencepost.Upload(j, t.RightKeys)
	if err != nil {
		return nil, nil, err
	}
	values, err := fencepost.Upload(j, t.RightValues)
	if err != nil {
		return nil, nil, err
	}
	if err := j.Launch(e.kernels.Clear, kernels.Rows(table.Len()), fencepost.Writes(table), fencepost.Value(uint32(table.Len()))); err != nil {
		return nil, nil, err
	}
	if err := j.Launch(e.kernels.Build, kernels.Rows(rows), fencepost.Reads(keys), fencepost.Reads(values), fencepost.ReadWrites(table),
		fencepost.Value(uint32(rows)), mask(table)); err != nil {
		return nil, nil, err
	}
	found, err = e.lookUp(j, table, keys)
	return table, found, err
}

// lookUp finds the value of each key.
func (e *Engine) lookUp(j *fencepost.Job, table, keys *column) (*column, error) {
	n := keys.Len()
	found, err := fencepost.Alloc[uint32](j, n)
	if err != nil {
		return nil, err
	}
	return found, j.Launch(e.kernels.Probe, kernels.Rows(n), fencepost.Reads(keys), fencepost.Reads(table), fencepost.Writes(found),
		fencepost.Value(uint32(n)), mask(table))
}

func mask(table *column) fencepost.Arg {
	return fencepost.Value(uint32(table.Len()/kernels.SlotWords - 1))
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
