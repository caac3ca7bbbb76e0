package incident

import (
	"encoding/binary"
	"hash/fnv"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

// maxSorts is how many sorts of findings are told apart; all beyond share one.
const maxSorts = 1024

// sort is what makes two findings the same bug: kind, source, tag, and the
// stacks, or, where none were kept, the launch that is suspected first.
type sort uint64

func sortOf(f *core.Finding) sort {
	h := fnv.New64a()
	add := func(texts ...string) {
		for _, s := range texts {
			_, _ = h.Write([]byte(s)) // never fails
			_, _ = h.Write([]byte{0})
		}
	}
	add(string(f.Kind), f.Source, string(f.Victim.Tag.OrUntagged()))
	var word [8]byte
	for _, stack := range []core.Stack{f.AllocStack, f.FreeStack} {
		for _, pc := range stack {
			binary.LittleEndian.PutUint64(word[:], uint64(pc))
			_, _ = h.Write(word[:])
		}
		add("")
	}
	if len(f.AllocStack)+len(f.FreeStack) == 0 && len(f.Suspects) > 0 {
		add(f.Suspects[0].Launch)
	}
	return sort(h.Sum64())
}

// limiter lets the first few findings of a sort through, and then one in a
// while with the number of those that it left out. What is left at the
// end is the newest finding of each sort, so no count is lost. It is not safe
// for concurrent use.
type limiter struct {
	most  int
	every time.Duration
	sorts map[sort]*storm
}

// storm is the findings of one sort.
type storm struct {
	// admitted counts those that were let through, last is when one was.
	admitted int
	last     time.Time
	// omitted were left out since, first and newest being the ends of them.
	omitted uint64
	first   time.Time
	newest  core.Finding
	// path is the file of the last that was admitted.
	path string
}

// others is the sort of all that are too many to be told apart.
const others sort = 0

// full reports whether one more finding of the storm is to be left out.
func (l *limiter) full(s *storm, now time.Time) bool {
	return s.admitted >= l.most && now.Sub(s.last) < l.every
}

// stormOf is the storm that f belongs to.
func (l *limiter) stormOf(f *core.Finding) *storm {
	k := sortOf(f)
	if l.sorts[k] == nil && len(l.sorts) >= maxSorts {
		k = others
	}
	if l.sorts[k] == nil {
		l.sorts[k] = &storm{}
	}
	return l.sorts[k]
}

// admit lets one through, and says what was left out before it.
func (s *storm) admit(now time.Time) Repeats {
	s.admitted++
	s.last = now
	return s.collect()
}

// omit leaves f out: it is the newest of the rest now.
func (s *storm) omit(f *core.Finding, now time.Time) {
	if s.omitted == 0 {
		s.first = now
	}
	s.omitted++
	s.newest = *f
}

// collect forgets what was left out, and says what it was.
func (s *storm) collect() Repeats {
	if s.omitted == 0 {
		return Repeats{}
	}
	r := Repeats{Since: instant(s.first), Omitted: s.omitted}
	s.omitted, s.newest = 0, core.Finding{}
	return r
}

// rest calls yield for the newest finding of each sort that was left out, with
// how many were before it, and forgets them.
func (l *limiter) rest(yield func(core.Finding, Repeats)) {
	for _, s := range l.sorts {
		if s.omitted == 0 {
			continue
		}
		f := s.newest
		r := s.collect()
		r.Omitted--
		if r.Omitted == 0 {
			r = Repeats{}
		}
		yield(f, r)
	}
}
