package gpucore

import (
	"strconv"
	"strings"
)

// access decodes what the instruction of a fault did. at is the function that the
// instruction lies in, or nil; w is the warp, or nil if it has ended; params are the
// parameters that its kernel was given.
func (p *parser) access(f *Fault, at *function, w *warp, params constants, sm int) error {
	a := &f.Access
	switch {
	case f.PC == 0:
		a.Why = "the dump does not say which instruction faulted"
		return nil
	case at == nil:
		a.Why = "no loaded module has the instruction that faulted"
		return nil
	case sm < 75 || sm > 90 && sm < 100 || sm > 129:
		a.Why = "instructions of this GPU's architecture are not decoded"
		return nil
	case f.Offset%instructionSize != 0 || f.Offset+instructionSize > at.end-at.start || at.end-at.start > maxFunction:
		a.Why = "the function is too long, or its instructions are not of 16 bytes"
		return nil
	}
	c, err := p.code(at, sm)
	if err != nil {
		return err
	}
	c.fault = int(f.Offset / instructionSize)
	m, ok := decode(c.all[c.fault], sm)
	if !ok {
		a.Why = "the instruction that faulted is not one that accesses global memory, or is not decoded"
		return nil
	}
	a.Kind, a.Bytes = m.kind, m.bytes
	switch {
	case w == nil:
		a.Why = "the warp has ended, and its registers are not in the dump"
	case !m.formed:
		a.Why = "the form of the instruction's address is not decoded"
	default:
		a.Why = c.mayRepeat()
	}
	for i := 0; a.Why == "" && i < len(w.lanes); i++ {
		l := &w.lanes[i]
		next := int64(c.fault) + (int64(l.pc)-int64(f.PC))/instructionSize
		if a.Why = c.passed(next); a.Why != "" {
			break
		}
		if c.all[c.fault].guarded() && l.preds == nil {
			a.Why = "the dump has no predicates"
			break
		}
		if !c.all[c.fault].holds(l.preds) {
			continue
		}
		r := &replay{asZeroAt: -1, c: c, next: int(next), lane: l, uregs: w.uregs, params: params, block: f.Block}
		address, ok := r.pair(m.base, c.fault)
		if ok && m.uniform >= 0 {
			var u uint64
			u, ok = r.uniform(m.uniform, c.fault)
			address += u
		}
		if !ok {
			a.Why = "a register of the address may have been overwritten since"
			break
		}
		address += uint64(m.offset)
		if len(a.Lanes) == 0 {
			a.Address, a.Lowest, a.Highest = address, address, address
		}
		a.Lanes = append(a.Lanes, Lane{l.thread, address})
		a.Lowest, a.Highest = min(a.Lowest, address), max(a.Highest, address)
	}
	if a.Why == "" && len(a.Lanes) == 0 {
		a.Why = "no lane's condition for the instruction is true"
	}
	if a.Why != "" {
		*a = Access{Kind: a.Kind, Bytes: a.Bytes, Why: a.Why}
		return nil
	}
	a.Known, f.Thread = true, a.Lanes[0].Thread
	return nil
}

// code returns a function's instructions, those of the last one without reading them
// again: most faults lie in the same.
func (p *parser) code(at *function, sm int) (*code, error) {
	if p.lastFunction == at {
		return p.lastCode, nil
	}
	b := make([]byte, at.end-at.start)
	if _, err := at.image.ReadAt(b, at.code); err != nil {
		return nil, err
	}
	c := &code{sm: sm, kernel: at.kernel == at.name}
	for ; len(b) >= instructionSize; b = b[instructionSize:] {
		c.all = append(c.all, instruction{le.Uint64(b), le.Uint64(b[8:])})
	}
	c.findTargets()
	p.lastFunction, p.lastCode = at, c
	return c, nil
}

// architecture returns 90 for "sm_90" and "sm_90a", and 0 if it is none.
func architecture(sm string) int {
	n, err := strconv.Atoi(strings.TrimRight(strings.TrimPrefix(sm, "sm_"), "af"))
	if err != nil {
		return 0
	}
	return n
}

// code is a function with an instruction that faulted.
type code struct {
	all    []instruction
	sm     int
	fault  int  // an index
	kernel bool // the function is a kernel, so that nothing calls it
	// targets are the instructions that a branch leads to, and one behind the last;
	// indirect says that there are branches of which it is not known where they lead.
	targets  []bool
	indirect bool
}

func (c *code) findTargets() {
	c.targets = make([]bool, len(c.all)+1)
	for i := range c.all {
		to, jumps, _, indirect := c.flow(i)
		c.indirect = c.indirect || indirect
		if jumps && to >= 0 && to < int64(len(c.all)) {
			c.targets[to] = true
		}
	}
}

// flow says where an instruction may lead besides to the next one. Nothing is known
// of an indirect jump.
func (c *code) flow(i int) (to int64, jumps, ends, indirect bool) {
	in := c.all[i]
	switch in.op() {
	case opBRA, opBSSY, opCALL:
		if in.op() == opBRA && in.bits(9, 3) != 4 && in.bits(9, 3) != 2 {
			return 0, false, false, true
		}
		return int64(i) + 1 + target(in, c.sm)/instructionSize, true, in.op() == opBRA && in.unconditional(), false
	case opEXIT:
		return 0, false, !in.guarded(), false
	case opBSYNC, opYIELD, opLEPC, opBMOV, opWARPSYNC, opBREAK, opBPT, opNANOSLEEP:
		return 0, false, false, false
	case opRET:
		return 0, false, !in.guarded(), false
	}
	return 0, false, false, in.op() >= 0x140 && in.op() < 0x160
}

// mayRepeat says why the instruction may have run again since it faulted, with other
// registers, or returns "". It cannot where no path leads back to it, or where each
// one waits for what it loads: a warp does not pass that wait after a fault.
func (c *code) mayRepeat() string {
	const again = "the instruction is in a loop, and may have run again before the warp stopped"
	barrier := uint(c.all[c.fault].bits(110, 3)) // which counter the result is waited for with
	seen := make([]bool, len(c.all))
	next := []int64{int64(c.fault) + 1}
	for len(next) > 0 {
		at := next[len(next)-1]
		next = next[:len(next)-1]
		if at == int64(c.fault) {
			return again
		}
		if at < 0 || at >= int64(len(c.all)) {
			return "the code leaves its function"
		}
		if seen[at] {
			continue
		}
		seen[at] = true
		in := c.all[at]
		if barrier < 6 && in.bit(116+barrier) {
			continue
		}
		to, jumps, ends, indirect := c.flow(int(at))
		switch {
		case indirect:
			return "the code jumps to addresses that are not known"
		case in.op() == opRET && !c.kernel:
			return "the function may have been called again before the warp stopped"
		}
		if jumps {
			next = append(next, to)
		}
		if !ends {
			next = append(next, at+1)
		}
	}
	return ""
}

// passed says why a lane that now stands at the instruction next may not have come by
// the instruction that faulted, or returns "".
func (c *code) passed(next int64) string {
	switch {
	case next <= int64(c.fault) || next > int64(len(c.all)) || next-int64(c.fault) > 4096:
		return "the lane does not stand behind the instruction that faulted"
	case c.indirect:
		return "the code jumps to addresses that are not known"
	}
	for i := c.fault; i < int(next); i++ {
		e := effectOf(c.all[i], c.sm)
		switch {
		case c.targets[i+1]:
			return "the lane may have jumped past the instruction that faulted"
		case i > c.fault && e.anything:
			return "what ran since the fault is not decoded"
		case i > c.fault && e.predicates != 0 && c.all[c.fault].guarded():
			return "the instruction's condition may have been overwritten since"
		}
	}
	return ""
}
