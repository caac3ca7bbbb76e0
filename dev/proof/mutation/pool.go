package mutation

// poolSites are where memory of the runtime's own pool changes hands.
var poolSites = []Site{
	{
		Name: "give: the mark is one too small", File: "cuda/lane.go", Func: "lane.giveLocked",
		Wrong: "who comes after the last point before a free takes its memory over, and not after what was enqueued since",
		Most:  6,
		Old:   "l.newest = s.Behind()",
		New:   "l.newest = s.Behind()\n if mutated() {\n l.newest--\n }",
	},
	{
		Name: "covered: by the owner's clock", File: "cuda/lane.go", Func: "lane.covered",
		Wrong: "memory is taken over by a stream that does not come after its mark, as its owner does",
		Old:   "return s.Covers(&l.stream.Stream, mark)",
		New:   "if mutated() {\n return l.stream.Covers(&l.stream.Stream, mark)\n }\n return s.Covers(&l.stream.Stream, mark)",
	},
	{
		Name: "completed: always", File: "cuda/lane.go", Func: "lane.completed",
		Wrong: "a page gets another address before the device has come to its mark",
		Most:  2,
		Old:   "return l.stream.HasCompleted(mark)",
		New:   "return mutated() || l.stream.HasCompleted(mark)",
	},
	{
		Name: "stealRun: no wait", File: "cuda/makeroom.go", Func: "lanes.stealRun",
		Wrong: "memory is stolen and nothing comes after its frees",
		Old:   "waited, err := s.ComeAfter(behind)",
		New:   "waited, err := false, error(nil)\n if !mutated() {\n waited, err = s.ComeAfter(behind)\n }",
	},
	{
		Name: "takeParts: no wait behind the first", File: "cuda/makeroom.go", Func: "lanes.takeParts",
		Wrong: "of pages in a row only those are waited for that lie first",
		Old:   "given, err = m.steal(s, from[p.From], p)",
		New: `if p != r[0] && mutated() {
			var got run
			if got, given = from[p.From].cutAt(p.Ptr, p.Bytes, nil); given {
				m.own(got, s.lane)
				s.lane.add(got, 0)
			}
		} else {
			given, err = m.steal(s, from[p.From], p)
		}`,
	},
	{
		Name: "merge: the older mark", File: "cuda/internal/fit/fit.go", Func: "Fit.merge",
		Wrong: "of two ranges that become one the younger is anybody's who covers the older",
		Most:  4,
		Old:   "lo.mark = max(lo.mark, hi.mark)",
		New:   "if mutated() {\n lo.mark = min(lo.mark, hi.mark)\n } else {\n lo.mark = max(lo.mark, hi.mark)\n }",
	},
}
