package fit

// record is a block, a free range, or, without bytes, the edge of a run. It has a cache
// line to itself.
type record struct {
	ptr, bytes   uint64
	mark         uint64
	below, above *record // neighbours by address
	prev         *record
	next         *record // of the class if it is free, of the chain in the table if it is a block
	free, held   bool
	kind         kind
}

func (r *record) end() uint64 { return r.ptr + r.bytes }
func (r *record) edge() bool  { return r.bytes == 0 }

// open reports whether it is a range that is free, or held.
func (r *record) open() bool { return r.free || r.held }

// isHeld reports whether it is a held range of a kind.
func (r *record) isHeld(of kind) bool { return r.held && r.kind == of }

// join makes neighbours of two records.
func join(lo, hi *record) { lo.above, hi.below = hi, lo }

// store keeps the records that are not used.
type store struct{ spare *record }

// storeAtOnce is how many records are made at a time.
const storeAtOnce = 64

// get is a record of nothing else than its bytes.
func (s *store) get(ptr, bytes uint64) *record {
	if s.spare == nil {
		more := make([]record, storeAtOnce)
		for i := range more {
			s.put(&more[i])
		}
	}
	r := s.spare
	s.spare = r.next
	r.ptr, r.bytes, r.mark, r.below, r.above, r.kind = ptr, bytes, 0, nil, nil, mixed
	return r
}

func (s *store) put(r *record) { r.next, s.spare = s.spare, r }
