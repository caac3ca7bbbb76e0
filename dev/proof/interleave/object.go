package interleave

// Object is something that goroutines may share: what a lock, an atomic or a
// part of a device is to the scheduler. The zero value is ready for use.
type Object struct {
	epoch uint32
	// threads that touched it since they run, and those that changed it, as
	// sets.
	threads, writers uint8
	// shared: goroutines stop before it.
	shared bool
	name   uint64
	// write is the number of the last change, reads the sum of the numbers of
	// the looks at it since.
	write, reads uint64
}

// Access is one object of a step.
type Access struct {
	Object *Object
	// Write: the step changes it, or finds out something that any other step
	// there may change.
	Write bool
}

// meet names the object when an execution first comes to it: by the steps of
// the goroutine that does, so that it has the same name in the next.
func (o *Object) meet(r *run, t *thread) {
	if o.epoch == epoch {
		return
	}
	*o = Object{epoch: epoch}
	if t == nil {
		r.met++
		o.name = mix(0, r.met)
	} else {
		t.met++
		o.name = mix(uint64(t.id)+1, t.met)
	}
	o.write = o.name
	o.shared = r.shared[o.name]
}

// note takes a step of t on its objects into account.
func (r *run) note(t *thread, objects []Access) {
	number := t.number
	for _, a := range objects {
		number = mix(mix(number, a.Object.name), a.Object.write)
		if a.Write {
			number = mix(number, a.Object.reads)
		}
	}
	for _, a := range objects {
		a.Object.take(r, t, a.Write, number)
	}
	t.number = number
	r.state += number
}

func (o *Object) take(r *run, t *thread, write bool, number uint64) {
	o.threads |= 1 << t.id
	if write {
		o.writers |= 1 << t.id
		o.write, o.reads = number, 0
	} else {
		o.reads += number
	}
	if !o.shared && o.writers != 0 && o.threads&(o.threads-1) != 0 {
		r.shared[o.name] = true
		r.grown = true
	}
}

// mix is a step of a hash: every bit of the result depends on every bit of
// both (the finish of MurmurHash3).
func mix(a, b uint64) uint64 {
	h := a*0x9e3779b97f4a7c15 + b + 0x2545f4914f6cdd1d
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
