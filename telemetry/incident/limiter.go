package incident

import (
	"fmt"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

// maxSorts is how many sorts of findings are told apart; all beyond share one.
const maxSorts = 1024

// sortOf is what makes two findings the same bug: kind, source, tag, and the
// stacks, or, where none were kept, the launch that is suspected first.
func sortOf(f *core.Finding) string {
	launch := ""
	if len(f.AllocStack)+len(f.FreeStack) == 0 && len(f.Suspects) > 0 && !f.Unranked {
		launch = f.Suspects[0].Launch
	}
	return fmt.Sprintf("%q %q %q %q %x %x", f.Kind, f.Source, f.Victim.Tag.OrUntagged(), launch, []uintptr(f.AllocStack), []uintptr(f.FreeStack))
}

// limiter lets the first few findings of a sort through, and then one in a
// while with the number of those that it left out. What is left at the
// end is the newest finding of each sort, so no count is lost. It is not safe
// for concurrent use.
type limiter struct {
	most  int
	every time.Duration
	sorts map[string]*storm
}

// storm is the findings of one sort.
type storm struct {
	admitted int       // how many were let through
	last     time.Time // when the last was
	path     string    // the file of that
	repeats  Repeats   // what was left out since
	newest   core.Finding
}

// full reports whether one more finding of the storm is to be left out.
func (l *limiter) full(s *storm, now time.Time) bool {
	return s.admitted >= l.most && now.Sub(s.last) < l.every
}

// stormOf is the storm that f belongs to.
func (l *limiter) stormOf(f *core.Finding) *storm {
	k := sortOf(f)
	if l.sorts[k] == nil && len(l.sorts) >= maxSorts {
		k = "" // all others
	}
	if l.sorts[k] == nil {
		l.sorts[k] = &storm{}
	}
	return l.sorts[k]
}

// admit lets one through, and says what was left out before it.
func (s *storm) admit(now time.Time) (left Repeats) {
	left = s.repeats
	s.admitted, s.last, s.repeats, s.newest = s.admitted+1, now, Repeats{}, core.Finding{}
	return left
}

// omit leaves f out: it is the newest of the rest now.
func (s *storm) omit(f *core.Finding, now time.Time) {
	if s.repeats.Omitted == 0 {
		s.repeats.Since = instant(now)
	}
	s.repeats.Omitted++
	s.newest = *f
}

// rest calls yield for the newest finding of each sort that was left out, with
// how many were before it.
func (l *limiter) rest(yield func(core.Finding, Repeats)) {
	for _, s := range l.sorts {
		switch left := s.repeats; left.Omitted {
		case 0:
		case 1:
			yield(s.newest, Repeats{})
		default:
			left.Omitted--
			yield(s.newest, left)
		}
	}
}
