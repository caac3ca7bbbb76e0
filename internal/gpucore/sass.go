package gpucore

// Machine code of compute capability 7.5 to 12.x: instructions of 128 bits. NVIDIA
// does not publish the encoding. What stands here was derived from, and is tested
// against, what NVIDIA's disassembler prints (testdata/sass.gz). How far a warp runs on
// after a fault was measured on 9.0 only. Bits are numbered as if an instruction were one
// number of 128 bits.

// instruction is one instruction, low and high half.
type instruction [2]uint64

const (
	instructionSize = 16
	noRegister      = 255 // reads as zero
	alwaysTrue      = 7   // the predicate PT
)

// bits returns n bits of the instruction from bit first on; they lie in one half.
func (i instruction) bits(first, n uint) uint64 { return i[first/64] >> (first % 64) & (1<<n - 1) }

func (i instruction) bit(n uint) bool { return i.bits(n, 1) != 0 }

func (i instruction) op() uint64 { return i.bits(0, 9) }

// guarded says whether the instruction has a condition.
func (i instruction) guarded() bool { return i.bits(12, 4) != alwaysTrue }

// unconditional says whether a branch is always taken: nothing in it names a condition.
func (i instruction) unconditional() bool {
	return !i.guarded() && i.bits(9, 3) == 4 && i.bits(24, 10) == 0 && i.bits(87, 4) == alwaysTrue
}

// holds says whether the instruction's condition is true with these predicates.
func (i instruction) holds(preds []uint32) bool {
	p := int(i.bits(12, 3))
	return (p == alwaysTrue || p < len(preds) && preds[p] != 0) != i.bit(15)
}

// signed returns n bits from bit first on as a signed number.
func (i instruction) signed(first, n uint) int64 {
	return int64(i.bits(first, n)<<(64-n)) >> (64 - n)
}

// The operations that are told apart.
const (
	opMOV      = 0x002
	opISETP    = 0x00c
	opIADD3    = 0x010
	opLEA      = 0x011
	opSHF      = 0x019
	opVIADD    = 0x036
	opS2R      = 0x119
	opIMAD     = 0x024
	opIMADWide = 0x025
	opULDC     = 0x0b9

	opLDG256 = 0x17e
	opSTG256 = 0x17f
	opLD     = 0x180
	opLDG    = 0x181
	opLDC    = 0x182
	opLDL    = 0x183
	opLDS    = 0x184
	opST     = 0x185
	opSTG    = 0x186
	opATOM   = 0x18a
	opCAS    = 0x18b
	opRED    = 0x18e
	opATOMF  = 0x1a2 // with numbers in floating point, since 9.0
	opATOMGF = 0x1a3
	opREDF   = 0x1a6
	opATOMG  = 0x1a8
	opCASG   = 0x1a9
	opLDGSTS = 0x1ae
	opBLKCP  = 0x1ba
	opBLKRED = 0x1bb
	opTMALDG = 0x1b4
	opTMASTG = 0x1b5
	opDEPBAR = 0x11a

	opBSYNC     = 0x141
	opBREAK     = 0x142
	opCALL      = 0x144
	opBSSY      = 0x145
	opYIELD     = 0x146
	opBRA       = 0x147
	opWARPSYNC  = 0x148
	opEXIT      = 0x14d
	opLEPC      = 0x14e
	opRET       = 0x150
	opBMOV      = 0x155
	opBPT       = 0x15c
	opNANOSLEEP = 0x15d
)

// memory is an instruction's access to memory through a global or generic address.
type memory struct {
	kind  AccessKind
	bytes uint32 // of each lane, zero if not known
	// The address is the sum of the register pair base, the uniform register pair
	// uniform (-1: none) and offset. It is decoded only if formed is true.
	formed  bool
	base    uint8
	uniform int
	offset  int64
}

var (
	widths   = [16]uint32{1, 1, 2, 2, 4, 8, 16}
	integers = [16]uint32{0: 4, 1: 4, 2: 8, 3: 8, 4: 16}
	// Before 9.0 some types in floating point stand among the integers.
	mixed  = [16]uint32{0: 4, 1: 4, 2: 8, 3: 4, 4: 4, 5: 8, 6: 8}
	floats = [16]uint32{0: 4, 1: 8, 2: 16, 3: 4, 4: 8, 5: 16, 9: 4, 10: 8, 11: 16, 13: 8, 14: 16, 15: 8}
)

// decode says how an instruction for the architecture sm (as 90 for sm_90) accesses
// global memory, and whether it does.
func decode(i instruction, sm int) (memory, bool) {
	m := memory{base: uint8(i.bits(24, 8)), uniform: -1, offset: i.signed(40, 24)}
	var (
		described, pair bool // a descriptor in a uniform register; base is a pair
		uniform         uint // where the uniform register is named
		unregistered    = i.bits(9, 3) == 1
		unconditional   = true // no predicate but the instruction's own decides
	)
	switch i.op() {
	case opLD, opLDG:
		m.kind, m.bytes = AccessRead, widths[i.bits(73, 3)]
		described, pair, uniform = i.bit(76), i.bit(90), 32
		if i.op() == opLD && !i.bit(91) {
			unregistered, m.offset = true, i.signed(32, 32)
		}
		unconditional = i.bits(64, 4) == 0
	case opST, opSTG:
		m.kind, m.bytes = AccessWrite, widths[i.bits(73, 3)]
		described, pair, uniform = i.bit(76), i.bit(90), 64
		if i.op() == opST && unregistered {
			m.offset = i.signed(32, 32)
		}
	case opATOM, opATOMG:
		m.kind, m.bytes = AccessAtomic, mixed[i.bits(73, 3)]
		if sm >= 90 {
			m.bytes = integers[i.bits(73, 3)]
		}
		described, pair, uniform = i.bit(71), i.bit(70), 64
		if sm >= 100 && !unregistered {
			described, pair, m.offset = i.bit(76), i.bit(63), i.signed(40, 23)
		}
	case opATOMF, opATOMGF:
		m.kind, m.bytes = AccessAtomic, floats[i.bits(73, 4)]
		described, pair, uniform = i.bit(71), i.bit(70), 64
		if sm >= 100 && !unregistered {
			described, pair, m.offset = i.bit(90), i.bit(63), i.signed(40, 23)
		}
	case opCAS, opCASG:
		m.kind, m.bytes = AccessAtomic, integers[i.bits(73, 3)]
	case opRED, opREDF:
		m.kind, m.bytes = AccessAtomic, mixed[i.bits(73, 3)]
		unregistered = !i.bit(91)
		switch {
		case i.op() == opREDF:
			m.bytes = floats[i.bits(73, 4)]
		case sm >= 90:
			m.bytes = integers[i.bits(73, 3)]
		}
		described, pair, uniform = i.bit(71), i.bit(90), 64
		if sm >= 100 {
			described = i.bit(81)
		}
	case opLDG256:
		m.kind, m.bytes, m.offset = AccessRead, 32, i.signed(40, 17)*32
		m.formed = i.bit(91) && i.bit(76) && i.bit(72) && i.bits(57, 7) == 0x7f && i.bits(87, 4) == 0
		return m, true
	case opSTG256:
		m.kind, m.bytes, m.offset = AccessWrite, 32, int64(i.bits(40, 16))*32
		m.formed = i.bit(91) && i.bit(76) && i.bits(56, 8) == 0xf8
		return m, true
	case opLDGSTS: // a copy to shared memory
		m.kind, m.bytes, m.offset = AccessRead, widths[i.bits(73, 3)], i.signed(32, 12)
		pair = i.bit(70)
		if sm >= 100 {
			m.bytes, pair = 4<<i.bits(74, 2), i.bit(83)
		}
		m.formed = i.bit(91) && i.bit(76) && pair && i.bits(87, 4) == alwaysTrue
		return m, true
	case opTMALDG: // copies of the tensor memory accelerator
		return memory{kind: AccessRead}, true
	case opTMASTG:
		return memory{kind: AccessWrite}, true
	case opBLKRED:
		return memory{kind: AccessAtomic}, true
	case opBLKCP:
		switch i.bits(73, 2) {
		case 1:
			m.kind = AccessRead
		case 2:
			m.kind = AccessWrite
		}
		return memory{kind: m.kind}, true
	default:
		return m, false
	}
	described = described && sm >= 80
	wide := i.bit(72) && unconditional // an address of 64 bits
	switch {
	case unregistered:
		m.formed = wide && (m.base != noRegister || m.offset >= 0) // without a register, offsets are printed unsigned
	case i.bits(9, 3) == 4 && i.bit(91) && uniform != 0:
		m.formed = wide && pair
		if !described {
			m.uniform = int(i.bits(uniform, 6))
			m.formed = m.formed && sm < 100 // newer ones were not seen
		}
	}
	return m, true
}

// effect is what an instruction may change.
type effect struct {
	first, count uint8 // registers
	predicates   uint8 // a bit for each
	uniform      bool
	anything     bool // all of it, or what runs next
}

// predicate returns the bit of the predicate that is named at a place, none of the one that is always true.
func (i instruction) predicate(first uint) uint8 { return 1 << i.bits(first, 3) &^ (1 << alwaysTrue) }

// effectOf says what an instruction may change at most.
func effectOf(i instruction, sm int) effect {
	const all = 1<<alwaysTrue - 1
	first := uint8(i.bits(16, 8))
	switch op := i.op(); op {
	case 0x118, opDEPBAR, 0x11d, opBSSY, opYIELD, opST, opSTG, opSTG256, 0x187, 0x188, opRED, opREDF, 0x18f, 0x192, 0x19d, 0x1ab, 0x1af, opLDGSTS:
		return effect{} // stores, fences and the like
	case opBRA:
		return effect{} // who stands behind it, and where no branch leads to, did not take it
	case opEXIT:
		return effect{anything: !i.guarded()} // who is still there has not left
	case 0x016, 0x020, 0x021, 0x023, opIMAD, 0x027, 0x030, 0x031, opVIADD, 0x045, 0x105, 0x106, 0x108, 0x109, opS2R:
		return effect{first: first, count: 1}
	case opMOV, 0x005, 0x007, opSHF, 0x029, 0x02b, 0x035, 0x110, 0x111:
		return effect{first: first, count: 2}
	case opLD, opLDG, opLDC, opLDL, opLDS:
		e := effect{first: first, count: uint8(max(4, widths[i.bits(73, 3)]) / 4)}
		if op == opLDG {
			e.predicates = i.predicate(81)
		}
		return e
	case 0x006, 0x100, 0x189: // and predicates
		return effect{first: first, count: 1, predicates: all}
	case opIADD3:
		return effect{first: first, count: 1, predicates: i.predicate(81) | i.predicate(84)}
	case opLEA, 0x012:
		return effect{first: first, count: 1, predicates: i.predicate(81)}
	case opIMADWide:
		return effect{first: first, count: 2, predicates: i.predicate(81)}
	case opISETP:
		return effect{predicates: i.predicate(81) | i.predicate(84)}
	case 0x00b, 0x01c, 0x02a, 0x102:
		return effect{predicates: all}
	case opATOM, opCAS, opATOMF, opATOMGF, opATOMG, opCASG:
		m, _ := decode(i, sm)
		if m.bytes == 0 {
			return effect{anything: true}
		}
		return effect{first: first, count: uint8(max(4, m.bytes) / 4), predicates: all}
	default:
		if op >= 0x080 && op < 0x0d0 || op == 0x1ac || op == 0x1c3 || op == 0x1c4 {
			return effect{uniform: true, predicates: all}
		}
		return effect{anything: true}
	}
}

// touches says whether the effect may change register r.
func (e effect) touches(r uint8) bool {
	return e.anything || r != noRegister && e.first != noRegister && r >= e.first && int(r) < int(e.first)+int(e.count)
}

// target returns where a branch goes, in bytes from the next instruction.
func target(i instruction, sm int) int64 {
	distance := i.signed(34, 30)
	if sm < 90 || i.op() == opBSSY {
		return distance * 4
	}
	return distance<<10 | int64(i.bits(16, 8)<<2)
}
