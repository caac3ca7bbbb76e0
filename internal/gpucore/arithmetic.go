package gpucore

// What sums of 64 bits are made of, of which the machine computes the halves one after the other: a carry is in a predicate between them.

// carried is what a sum carries into the next half: nothing, or 1.
type carried uint64

// sum computes again what an addition or a shift wrote.
func (r *replay) sum(i int) (value uint32, carry carried, ok bool) {
	in := r.c.all[i]
	switch in.op() {
	case opIADD3:
		return r.add3(i)
	case opLEA:
		return r.lea(i)
	case opVIADD:
		if in.bits(64, 27) != 0 || in.bits(91, 14) != in.uniforms() {
			return 0, 0, false
		}
		a, ok1 := r.register(uint8(in.bits(24, 8)), i)
		b, ok2 := r.source2(i)
		return a + b, unknownCarry, ok1 && ok2
	case opSHF:
		value, ok = r.shift(i)
		return value, 0, ok
	}
	return 0, 0, false
}

// uniforms is 1 if an operand is a uniform register, which bit 91 says again.
func (i instruction) uniforms() uint64 {
	if i.bits(9, 3) == 6 {
		return 1
	}
	return 0
}

// source2 returns the second operand of an instruction whose third is a register.
func (r *replay) source2(i int) (uint32, bool) {
	in := r.c.all[i]
	form := in.bits(9, 3)
	if form != 1 && form < 4 || form == 7 {
		return 0, false
	}
	negated := form != 4 && in.bit(63)
	if negated {
		in[0] &^= 1 << 63
	}
	v, ok := r.operand(in, form, i, false)
	if negated {
		v = -v
	}
	return uint32(v), ok
}

// add3 adds three numbers, and up to two carries. A carry out of a sum with a number that is negated is not computed.
func (r *replay) add3(i int) (value uint32, carry carried, ok bool) {
	in := r.c.all[i]
	extended := in.bit(74)
	if in.bits(84, 3) != alwaysTrue || in.bit(73) || in.bit(62) && in.bits(9, 3) != 4 || in.bits(91, 14) != in.uniforms() {
		return 0, 0, false
	}
	a, ok1 := r.register(uint8(in.bits(24, 8)), i)
	b, ok2 := r.source2(i)
	c, ok3 := r.register(uint8(in.bits(64, 8)), i)
	negated := in.bit(72) || in.bit(75) || in.bit(63) && in.bits(9, 3) != 4
	if in.bit(72) {
		a = -a
	}
	if in.bit(75) {
		c = -c
	}
	total := uint64(a) + uint64(b) + uint64(c)
	if extended {
		if negated { // it is the complement there
			return 0, 0, false
		}
		first, ok4 := r.predicate(in.bits(87, 3), in.bit(90), i)
		second, ok5 := r.predicate(in.bits(77, 3), in.bit(80), i)
		total += uint64(first + second)
		ok1 = ok1 && ok4 && ok5
	}
	ok = ok1 && ok2 && ok3
	if in.bits(81, 3) != alwaysTrue && (negated || total>>32 > 1) {
		carry = unknownCarry
	} else {
		carry = carried(total >> 32)
	}
	return uint32(total), carry, ok
}

// unknownCarry stands for one that is not computed.
const unknownCarry carried = 2

// lea shifts a number to the left and adds another: the low half of the sum or, of a number of 64 bits, the high one.
func (r *replay) lea(i int) (value uint32, carry carried, ok bool) {
	in := r.c.all[i]
	const high, extended = 80, 74
	if in.bit(72) || in.bit(73) || in.bit(63) && in.bits(9, 3) != 4 || in.bits(84, 3) != 0 || in.bits(91, 14) != in.uniforms() {
		return 0, 0, false
	}
	a, ok1 := r.register(uint8(in.bits(24, 8)), i)
	b, ok2 := r.source2(i)
	by, ok := in.bits(75, 5), ok1 && ok2
	shifted := uint64(a << by)
	if in.bit(high) {
		upper, ok3 := r.register(uint8(in.bits(64, 8)), i)
		ok = ok && ok3
		shifted = (uint64(upper)<<32 | uint64(a)) << by >> 32
	}
	total := shifted + uint64(b)
	if in.bit(extended) {
		more, ok4 := r.predicate(in.bits(87, 3), in.bit(90), i)
		total, ok = total+uint64(more), ok && ok4
	}
	return uint32(total), carried(total >> 32), ok
}

// shift shifts a number, or two registers as one, by a number that the instruction names.
func (r *replay) shift(i int) (uint32, bool) {
	in := r.c.all[i]
	by := in.bits(32, 32)
	if in.bits(9, 3) != 4 || by > 31 || in[1]&modifiers&^0xff&^(3<<9|1<<12|1<<16) != 0 {
		return 0, false
	}
	low, ok1 := r.register(uint8(in.bits(24, 8)), i)
	upper, ok2 := r.register(uint8(in.bits(64, 8)), i)
	pair := uint64(upper)<<32 | uint64(low)
	const signed64, unsigned64, signed32, unsigned32 = 0, 1, 2, 3
	right, high := in.bit(76), in.bit(80)
	switch kind := in.bits(73, 2); {
	case right && high && kind == signed32:
		return uint32(int32(upper) >> by), ok2
	case right && high && kind == unsigned32:
		return upper >> by, ok2
	case right && !high && (kind == unsigned64 || kind == signed64):
		return uint32(pair >> by), ok1 && ok2
	case !right && high && (kind == unsigned64 || kind == signed64):
		return uint32(pair << by >> 32), ok1 && ok2
	case !right && !high:
		return low << by, ok1
	}
	return 0, false
}

// predicate returns predicate n before the instruction at, or its contrary.
func (r *replay) predicate(n uint64, contrary bool, at int) (carried, bool) {
	value, ok := carried(1), true
	if n != alwaysTrue {
		value, ok = r.predicateAt(n, at)
	}
	if contrary {
		value = 1 - value
	}
	return value, ok
}

func (r *replay) predicateAt(n uint64, at int) (carried, bool) {
	writes := func(e effect) bool { return e.predicates>>n&1 != 0 }
	if !r.changes(at, writes) {
		if int(n) >= len(r.lane.preds) {
			return 0, false
		}
		return carried(min(r.lane.preds[n], 1)), true
	}
	i, ok := r.source(at, writes)
	if !ok {
		return 0, false
	}
	_, carry, ok := r.sum(i)
	return carry, ok && carry < unknownCarry
}

// adds says whether an instruction is a sum of a register and of others.
func (i instruction) adds(n uint8) bool {
	is := func(first uint) bool { return i.bits(first, 8) == uint64(n) }
	if i.guarded() || !is(16) {
		return false
	}
	first, second, third := is(24), i.bits(9, 3) == 1 && is(32), is(64)
	switch i.op() {
	case opVIADD:
		return first && !second
	case opIADD3:
		return first && !second && !third && !i.bit(72) || second && !first && !third && !i.bit(63) || third && !first && !second && !i.bit(75)
	case opIMAD: // the third is what is added
		one := i.bits(9, 3) == 4 && i.bits(32, 32) == 1
		return third && !first && !second && i.bits(9, 3) != 2 && i.bits(9, 3) != 3 && i.bits(9, 3) != 7 || first && one && !third
	}
	return false
}

// unadded returns register n before the instruction at, if what wrote over it first only added to it, as a loop does to its counter.
func (r *replay) unadded(n uint8, at int) (uint32, bool) {
	for i := at; i < r.next; i++ {
		e := effectOf(r.c.all[i], r.c.sm)
		if r.steps++; r.steps > maxSteps || e.anything {
			return 0, false
		}
		if !e.touches(n) {
			continue
		}
		if !r.c.all[i].adds(n) {
			return 0, false
		}
		after, ok := r.register(n, i+1)
		if !ok {
			return 0, false
		}
		asZero, asZeroAt := r.asZero, r.asZeroAt
		r.asZero, r.asZeroAt = n, i
		added, wide, ok := r.result(i)
		r.asZero, r.asZeroAt = asZero, asZeroAt
		return after - uint32(added), ok && !wide
	}
	return 0, false
}
