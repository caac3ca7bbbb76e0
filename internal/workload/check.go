package workload

import (
	"context"
	"errors"
	"slices"
)

// got are the results as they came back: the columns of the same names.
type got struct{ keys, values, joined, kept, survivors []uint32 }

// room is the host memory that the results of n rows need.
func room(n int, alloc func(words int) []uint32) got {
	return got{alloc(n), alloc(n), alloc(n), alloc(n), alloc(slicesOf(n))}
}

// check brings the results back and compares them.
func (it *iteration) check(ctx context.Context, t tables, r *results) error {
	g := room(len(t.leftKeys), func(n int) []uint32 { return make([]uint32, n) })
	if err := it.fetch(ctx, r, g); err != nil {
		return err
	}
	it.w.compare(g, t.expect())
	return nil
}

// fetch downloads the results on the stream that did not write them, and
// waits. The device memory is given back while the copies are still under way:
// its frees are ordered behind them.
func (it *iteration) fetch(ctx context.Context, r *results, to got) error {
	err := errors.Join(it.download(ctx, to.keys, r.keys), it.download(ctx, to.values, r.values), it.download(ctx, to.joined, r.joined),
		it.download(ctx, to.kept, r.kept), it.download(ctx, to.survivors, r.survivors))
	err = errors.Join(err, it.freeAll(ctx))
	for _, l := range it.streams {
		err = errors.Join(err, it.w.env.Streams.Synchronize(ctx, l.ID()))
	}
	return err
}

// compare counts the results and those that differ.
func (w *Workload) compare(g got, want expected) {
	for _, pair := range [][2][]uint32{{g.keys, want.keys}, {g.values, want.values}, {g.joined, want.joined}, {gather(g.kept, g.survivors), want.kept}} {
		w.checked.Add(1)
		if !slices.Equal(pair[0], pair[1]) {
			w.wrong.Add(1)
		}
	}
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
