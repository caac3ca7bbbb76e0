package workload

import (
	"context"
	"errors"
	"slices"
)

// check downloads the results on the stream that did not write them and
// compares them. The device memory is given back while the copies are still
// under way: its frees are ordered behind them.
func (it *iteration) check(ctx context.Context, t tables, r *results) error {
	cols := []*column{r.keys, r.values, r.joined, r.kept, r.survivors}
	got := make([][]uint32, len(cols))
	var err error
	for i, col := range cols {
		got[i] = make([]uint32, col.Len())
		err = errors.Join(err, it.download(ctx, got[i], col))
	}
	err = errors.Join(err, it.freeAll(ctx))
	for _, l := range it.streams {
		err = errors.Join(err, it.w.env.Streams.Synchronize(ctx, l.ID()))
	}
	if err != nil {
		return err
	}
	want := t.expect()
	for _, pair := range [][2][]uint32{{got[0], want.keys}, {got[1], want.values}, {got[2], want.joined}, {gather(got[3], got[4]), want.kept}} {
		it.w.checked.Add(1)
		if !slices.Equal(pair[0], pair[1]) {
			it.w.wrong.Add(1)
		}
	}
	return nil
}

// gather joins the survivors of all slices. A number that a missing fence has
// spoilt may be anything.
func gather(kept, survivors []uint32) []uint32 {
	all := make([]uint32, 0, len(kept))
	for i, n := range survivors {
		slice := sliceOf(kept, i)
		all = append(all, slice[:min(int(n), len(slice))]...)
	}
	return all
}
