package fit

import "fmt"

// wrong finds what contradicts itself inside of a fit.
func (f *Fit) wrong() error {
	listed := map[*record]bool{}
	for of := range f.ranges {
		if err := f.ranges[of].wrong(kind(of), listed); err != nil {
			return err
		}
	}
	blocks, ends := 0, 0
	for at, e := range f.edges {
		if e.ptr != at || !e.edge() || e.free || (e.above == nil) == (e.below == nil) {
			return fmt.Errorf("the edge at %#x is %+v", at, *e)
		}
		if e.above == nil {
			ends++
			continue
		}
		prev := e
		for r := e.above; ; prev, r = r, r.above {
			if r.below != prev || r.ptr != prev.end() || prev.free && r.free && prev.kind == r.kind || r.free != listed[r] {
				return fmt.Errorf("%+v is above %+v, listed: %v", *r, *prev, listed[r])
			}
			delete(listed, r)
			if r.above == nil {
				break
			}
			if r.edge() || !r.open() && f.blocks.find(r.ptr) != r {
				return fmt.Errorf("the table does not have %+v", *r)
			}
			if !r.open() {
				blocks++
			}
		}
		if last := prev.above; !last.edge() || f.edges[last.ptr] != last {
			return fmt.Errorf("a run ends in %+v", *last)
		}
	}
	if len(listed) > 0 || blocks != f.blocks.n || 2*ends != len(f.edges) {
		return fmt.Errorf("%d ranges are in no run; %d blocks, the table counts %d; %d runs end, of %d edges", len(listed), blocks, f.blocks.n, ends, len(f.edges))
	}
	return nil
}

// wrong finds what contradicts itself in the lists of a kind, and notes what is listed.
func (c *classes) wrong(of kind, listed map[*record]bool) error {
	for row, lists := range c.lists {
		if got, want := c.rows>>row&1 != 0, lists != 0; got != want {
			return fmt.Errorf("the bit of row %d is %v", row, got)
		}
	}
	for i, first := range c.first {
		at := class(i)
		if got, want := c.lists[at.row()]&at.bit() != 0, first != nil; got != want {
			return fmt.Errorf("the bit of class %d is %v", at, got)
		}
		for r, prev := first, (*record)(nil); r != nil; r, prev = r.next, r {
			if !r.free || r.kind != of || r.prev != prev || classOf(r.bytes) != at || listed[r] {
				return fmt.Errorf("%+v is in the list of class %d behind %p", *r, at, prev)
			}
			listed[r] = true
		}
	}
	return nil
}

func (t *table) find(ptr uint64) *record {
	if t.n == 0 {
		return nil
	}
	for r := *t.chain(ptr); r != nil; r = r.next {
		if r.ptr == ptr {
			return r
		}
	}
	return nil
}
