package logging

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func feed(q *queue, numbers ...uint64) {
	for _, n := range numbers {
		r := numbered(n)
		q.push(&r)
	}
}

func TestReorderWritesARoundLateAndInOrder(t *testing.T) {
	q := newQueue(16)
	var o reorder
	step := func(arrive, want []uint64) {
		t.Helper()
		feed(q, arrive...)
		due := o.round(q)
		if got := seqs(due); !slices.Equal(got, want) {
			t.Errorf("after %v: got %v, want %v", arrive, got, want)
		}
		o.drop(len(due))
	}
	step([]uint64{2, 5, 3}, nil)
	step([]uint64{4, 7, 1}, []uint64{1, 2, 3, 4, 5}) // late by less than a round
	step(nil, []uint64{7})                           // 6 never comes
	if !o.empty() {
		t.Error("something is held for ever")
	}
	step([]uint64{6}, []uint64{6}) // too late: written at once
	feed(q, 9, 8)
	if got := seqs(o.rest(q)); !slices.Equal(got, []uint64{8, 9}) {
		t.Errorf("rest: got %v", got)
	}
}

func TestReorderSortsWhatArrivesWithinARound(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	q := newQueue(64)
	var o reorder
	var got []uint64
	next := uint64(1)
	var late []uint64
	for range 200 {
		round := late
		late = nil
		for range random.IntN(20) {
			if random.IntN(4) == 0 {
				late = append(late, next)
			} else {
				round = append(round, next)
			}
			next++
		}
		random.Shuffle(len(round), func(i, j int) { round[i], round[j] = round[j], round[i] })
		feed(q, round...)
		due := o.round(q)
		got = append(got, seqs(due)...)
		o.drop(len(due))
	}
	feed(q, late...)
	got = append(got, seqs(o.rest(q))...)
	if uint64(len(got)) != next-1 || !slices.IsSorted(got) {
		t.Errorf("%d of %d records, sorted: %v", len(got), next-1, slices.IsSorted(got))
	}
}
