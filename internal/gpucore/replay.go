package gpucore

// replay computes what a lane's registers held at an instruction before the one where
// the lane stands. A register that nothing has written since still holds it. Loads
// often write over their own address; then the instructions that made the address are
// computed again, from registers that are still there, the parameters and the indices of
// thread and block.
type replay struct {
	c      *code
	next   int // where the lane stands
	lane   *lane
	uregs  []uint32
	params constants
	block  [3]uint32
	steps  int // bounds the work
	// asZero is a register that the instruction asZeroAt finds zero.
	asZero   uint8
	asZeroAt int
}

// constants is the part of constant bank 0 that holds a kernel's parameters.
type constants struct {
	at   uint64 // its offset in the bank
	data []byte
}

const maxSteps = 1 << 14

// source returns the instruction before at that writes a register last, as far as
// writes says; it has run for sure. ok is false if another one may be it.
func (r *replay) source(at int, writes func(effect) bool) (i int, ok bool) {
	for i = at - 1; i >= 0 && !r.c.targets[i+1]; i-- {
		e := effectOf(r.c.all[i], r.c.sm)
		if r.steps++; e.anything || r.steps > maxSteps {
			return 0, false
		}
		if !writes(e) {
			continue
		}
		// A condition of a uniform instruction is a uniform predicate.
		in := r.c.all[i]
		if in.guarded() && (e.uniform || r.lane.preds == nil || r.changes(i, func(e effect) bool { return e.predicates != 0 })) {
			return 0, false
		}
		if in.holds(r.lane.preds) {
			return i, true
		}
	}
	return 0, false
}

// changes says whether an instruction from at to where the lane stands may change
// something. No branch lies between.
func (r *replay) changes(at int, what func(effect) bool) bool {
	for i := at; i < r.next; i++ {
		e := effectOf(r.c.all[i], r.c.sm)
		if r.steps++; r.steps > maxSteps || e.anything || what(e) {
			return true
		}
	}
	return false
}

// register returns register n before the instruction at.
func (r *replay) register(n uint8, at int) (value uint32, ok bool) {
	if n == noRegister || at == r.asZeroAt && n == r.asZero {
		return 0, true
	}
	writes := func(e effect) bool { return e.touches(n) }
	if !r.changes(at, writes) {
		if int(n) >= len(r.lane.regs) {
			return 0, false
		}
		return r.lane.regs[n], true
	}
	if i, ok := r.source(at, writes); ok {
		pair, wide, ok := r.result(i)
		switch first := uint8(r.c.all[i].bits(16, 8)); {
		case n == first && ok:
			return uint32(pair), true
		case n == first+1 && wide && ok:
			return uint32(pair >> 32), true
		}
	}
	return r.unadded(n, at)
}

// pair returns registers n and n+1 before the instruction at.
func (r *replay) pair(n uint8, at int) (uint64, bool) {
	if n == noRegister {
		return 0, true
	}
	lo, ok := r.register(n, at)
	hi, ok2 := r.register(n+1, at)
	return uint64(hi)<<32 | uint64(lo), ok && ok2
}

// uniform returns uniform registers n and n+1 before the instruction at; a second one
// is zero where there is none.
func (r *replay) uniform(n int, at int) (uint64, bool) {
	writes := func(e effect) bool { return e.uniform }
	if !r.changes(at, writes) {
		if n+1 >= len(r.uregs) {
			return 0, false
		}
		return uint64(r.uregs[n+1])<<32 | uint64(r.uregs[n]), true
	}
	i, ok := r.source(at, writes)
	if !ok {
		return 0, false
	}
	in := r.c.all[i]
	if in.op() != opULDC || int(in.bits(16, 6)) != n || in[1]&modifiers != 0xa00 {
		return 0, false
	}
	return r.constant(in, 8)
}

// constant returns n bytes of the constant bank that an instruction names.
func (r *replay) constant(in instruction, n uint64) (uint64, bool) {
	offset := in.bits(38, 16)
	if in.bits(54, 10) != 0 || offset < r.params.at || offset+n > r.params.at+uint64(len(r.params.data)) {
		return 0, false
	}
	b := r.params.data[offset-r.params.at:]
	if n == 8 {
		return le.Uint64(b), true
	}
	return uint64(le.Uint32(b)), true
}

// modifiers are the bits of the high half that say what an instruction does with its
// operands; those above are for scheduling.
const modifiers = 1<<41 - 1

// result computes again what the instruction i wrote: one register, or if wide two.
func (r *replay) result(i int) (value uint64, wide, ok bool) {
	in := r.c.all[i]
	form, mods := in.bits(9, 3), in[1]&modifiers
	switch in.op() {
	case opMOV:
		if mods != 0xf00 && (mods != 0x8000f00 || form != 6) {
			return 0, false, false
		}
		value, ok = r.operand(in, form, i, false)
		return value, false, ok
	case opS2R: // a special register: an index of the thread or the block
		switch n := in.bits(72, 8); {
		case n >= 0x21 && n <= 0x23:
			return uint64(r.lane.thread[n-0x21]), false, true
		case n >= 0x25 && n <= 0x27:
			return uint64(r.block[n-0x25]), false, true
		}
		return 0, false, false
	case opLDC:
		if form != 5 || in.bits(24, 8) != noRegister || mods != 0x800 && mods != 0xa00 {
			return 0, false, false
		}
		wide = mods == 0xa00
		n := uint64(4)
		if wide {
			n = 8
		}
		value, ok = r.constant(in, n)
		return value, wide, ok
	case opIADD3, opLEA, opSHF, opVIADD:
		sum, _, ok := r.sum(i)
		return uint64(sum), false, ok
	case opIMAD, opIMADWide:
		// Without negation; bit 73 says that it is signed, bit 74 that a carry is added.
		wide = in.op() == opIMADWide
		want := uint64(0x78e0000)
		if form >= 6 {
			want = 0xf8e0000
		}
		var carry carried
		if extended := mods & (1 << 10); extended != 0 && !wide {
			if carry, ok = r.predicate(in.bits(87, 3), in.bit(90), i); !ok {
				return 0, false, false
			}
			mods = mods&^(1<<10|0xf<<23) | want&(0xf<<23)
		}
		if mods&^0x2ff != want {
			return 0, false, false
		}
		a, ok1 := r.register(uint8(in.bits(24, 8)), i)
		third := uint8(in.bits(64, 8))
		var b uint32
		var c uint64
		var ok2, ok3 bool
		switch form {
		case 1, 4, 5, 6: // the second operand is of that form, the third a register
			var v uint64
			v, ok2 = r.operand(in, form, i, false)
			b = uint32(v)
			c, ok3 = r.addend(third, i, wide)
		case 2, 3, 7: // the third is
			b, ok2 = r.register(third, i)
			c, ok3 = r.operand(in, map[uint64]uint64{2: 4, 3: 5, 7: 6}[form], i, wide)
			ok3 = ok3 && (!wide || form != 2)
		}
		product := uint64(a) * uint64(b)
		if in.bit(73) {
			product = uint64(int64(int32(a)) * int64(int32(b)))
		}
		return product + c + uint64(carry), wide, ok1 && ok2 && ok3
	}
	return 0, false, false
}

func (r *replay) addend(n uint8, at int, wide bool) (uint64, bool) {
	if wide {
		return r.pair(n, at)
	}
	v, ok := r.register(n, at)
	return uint64(v), ok
}

// operand returns the operand in the bits 32 to 63: a register, a number, a constant or
// a uniform register; with wide 64 bits of it.
func (r *replay) operand(in instruction, form uint64, at int, wide bool) (uint64, bool) {
	switch form {
	case 1:
		if in.bits(40, 24) != 0 {
			return 0, false
		}
		return r.addend(uint8(in.bits(32, 8)), at, wide)
	case 4:
		return in.bits(32, 32), true
	case 5:
		if wide {
			return r.constant(in, 8)
		}
		return r.constant(in, 4)
	case 6:
		if in.bits(38, 26) != 0 {
			return 0, false
		}
		v, ok := r.uniform(int(in.bits(32, 6)), at)
		if !wide {
			v &= 1<<32 - 1
		}
		return v, ok
	}
	return 0, false
}
