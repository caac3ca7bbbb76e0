package program

import (
	"slices"
	"testing"
)

var every = []Kind{Launch, Free, Sync, Abort, Record, Reap, Faulty, FaultyRecord, GiveUp}

// orbits counts programs the slow way: all of them with all names of streams,
// each named anew in every way that there is, of which the first in order
// stands for all. No part of what Each does is used.
func orbits(streams, blocks, ops int, kinds []Kind) uint64 {
	seen := map[string]bool{}
	var extend func(p []Op, made uint8, live Set)
	extend = func(p []Op, made uint8, live Set) {
		if len(p) > 0 {
			seen[smallestName(p, streams)] = true
		}
		if len(p) == ops {
			return
		}
		then := func(o Op, made uint8, live Set) { extend(append(slices.Clone(p), o), made, live) }
		for s := range uint8(streams) {
			if int(made) < blocks {
				then(Op{Kind: Alloc, Stream: s, Block: made}, made+1, live|1<<made)
			}
			named := slices.ContainsFunc(p, func(o Op) bool { return o.Kind != Free && o.Stream == s })
			for _, k := range []Kind{Sync, Reap, GiveUp} {
				if slices.Contains(kinds, k) && named {
					then(Op{Kind: k, Stream: s}, made, live)
				}
			}
			for b := range made {
				for _, k := range []Kind{Record, FaultyRecord} {
					if slices.Contains(kinds, k) && live.Has(b) {
						then(Op{Kind: k, Stream: s, Block: b}, made, live)
					}
				}
			}
			for reads := range Set(1) << made {
				for writes := range Set(1) << made {
					if reads|writes == 0 || reads&writes != 0 || (reads|writes)&^live != 0 {
						continue
					}
					for _, k := range []Kind{Launch, Abort, Faulty} {
						if slices.Contains(kinds, k) {
							then(Op{Kind: k, Stream: s, Reads: reads, Writes: writes}, made, live)
						}
					}
				}
			}
		}
		for b := range made {
			if slices.Contains(kinds, Free) && live.Has(b) {
				then(Op{Kind: Free, Block: b}, made, live&^(1<<b))
			}
		}
	}
	extend(nil, 0, 0)
	return uint64(len(seen))
}

func smallestName(p []Op, streams int) string {
	best := ""
	var permute func(names []uint8, left []uint8)
	permute = func(names, left []uint8) {
		if len(left) == 0 {
			renamed := slices.Clone(p)
			for i := range renamed {
				if renamed[i].Kind != Free {
					renamed[i].Stream = names[renamed[i].Stream]
				}
			}
			if text := Program(renamed).String(); best == "" || text < best {
				best = text
			}
			return
		}
		for i := range left {
			permute(append(slices.Clone(names), left[i]), slices.Delete(slices.Clone(left), i, i+1))
		}
	}
	var all []uint8
	for s := range streams {
		all = append(all, uint8(s))
	}
	permute(nil, all)
	return best
}

func TestEveryProgramIsMadeOnce(t *testing.T) {
	for _, b := range []Bounds{
		{Streams: 1, Blocks: 1, Ops: 5, Kinds: every}, {Streams: 2, Blocks: 2, Ops: 4, Kinds: every},
		{Streams: 3, Blocks: 2, Ops: 3, Kinds: every}, {Streams: 3, Blocks: 3, Ops: 4, Kinds: []Kind{Launch, Free}},
		{Streams: 3, Blocks: 3, Ops: 3, Kinds: every},
	} {
		seen := map[string]bool{}
		b.Each(1, func(p Program) bool {
			seen[p.String()] = true
			return true
		})
		made := uint64(0)
		b.Each(1, func(Program) bool { made++; return true })
		want := orbits(b.Streams, b.Blocks, b.Ops, b.Kinds)
		if made != want || uint64(len(seen)) != want {
			t.Errorf("%+v: %d programs were made, %d of them different; there are %d", b, made, len(seen), want)
		}
	}
}

// sized are programs whose blocks have sizes and whose launches write one.
var sized = Bounds{Streams: 2, Blocks: 3, Ops: 4, Kinds: []Kind{Launch, Free, Reap}, Sizes: []uint8{1, 2, 4}, Single: true}

// TestSizesAreAllTried compares programs with sizes to those without, each of which has three for each
// block and no launch over several.
func TestSizesAreAllTried(t *testing.T) {
	plain := sized
	plain.Sizes, plain.Single = nil, false
	want := uint64(0)
	plain.Each(1, func(p Program) bool {
		n := uint64(1)
		for _, o := range p {
			switch {
			case o.Kind == Alloc:
				n *= uint64(len(sized.Sizes))
			case o.IsLaunch() && (o.Reads != 0 || o.Writes.Len() > 1):
				n = 0
			}
		}
		want += n
		return true
	})
	seen := map[string]bool{}
	sized.Each(1, func(p Program) bool {
		seen[p.String()] = true
		return true
	})
	if n := uint64(len(seen)); n != want {
		t.Errorf("%d programs were made; there are %d", n, want)
	}
}
