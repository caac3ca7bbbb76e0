package gpucore

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// printed is an instruction as NVIDIA's disassembler prints it.
type printed struct {
	sm       int
	mutant   bool // its bits were changed at random: no compiler may make such
	in       instruction
	text     string
	name     string   // as "LDG"
	suffixes []string // as "E", "64"
	operands []string
}

// disassembled calls each with every instruction of testdata/sass.gz: all accesses to
// memory and branches, and one of each other form, that nvcc 13.0 made of some 300
// kernels, and mutants of the accesses. A line is an architecture ("m" for a mutant),
// the 128 bits in hexadecimal (the low half first), and cuobjdump's or nvdisasm's text;
// a branch's ends with the distance to its target.
func disassembled(t testing.TB, each func(printed)) {
	file, err := os.Open(filepath.Join("testdata", "sass.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	z, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(z)
	for lines.Scan() {
		f := strings.Split(lines.Text(), "\t")
		sm, mutant := strings.CutSuffix(f[0], "m")
		p := printed{text: f[2], mutant: mutant}
		var errs [3]error
		p.sm, errs[0] = strconv.Atoi(sm)
		p.in[0], errs[1] = strconv.ParseUint(f[1][:16], 16, 64)
		p.in[1], errs[2] = strconv.ParseUint(f[1][16:], 16, 64)
		if errs != [3]error{} {
			t.Fatal(f, errs)
		}
		text := regexp.MustCompile(`^@\S+ `).ReplaceAllString(p.text, "")
		name, operands, _ := strings.Cut(text, " ")
		p.suffixes = strings.Split(name, ".")
		p.name, p.suffixes = p.suffixes[0], p.suffixes[1:]
		for o := range strings.SplitSeq(operands, ",") {
			p.operands = append(p.operands, strings.TrimSpace(o))
		}
		each(p)
	}
	if lines.Err() != nil {
		t.Fatal(lines.Err())
	}
}

var kinds = map[string]AccessKind{
	"LD": AccessRead, "LDG": AccessRead, "LDGSTS": AccessRead, "UTMALDG": AccessRead,
	"ST": AccessWrite, "STG": AccessWrite, "UTMASTG": AccessWrite,
	"ATOM": AccessAtomic, "ATOMG": AccessAtomic, "RED": AccessAtomic, "REDG": AccessAtomic, "UBLKRED": AccessAtomic,
}

// width returns how many bytes the suffixes of an access's name say, or 0.
func (p printed) width() uint32 {
	for _, s := range p.suffixes {
		switch s {
		case "U8", "S8":
			return 1
		case "U16", "S16":
			return 2
		case "64", "S64", "F64", "F32x2", "F16x4", "BF16x4":
			return 8
		case "128", "F32x4", "F16x8", "BF16x8":
			return 16
		case "256":
			return 32
		}
		if strings.HasPrefix(s, "INVALID") || strings.HasPrefix(s, "?") || s == "U" {
			return 0
		}
	}
	return 4
}

var address = regexp.MustCompile(`\[(?:(R\d+|RZ)(\.64|\.U32)?)?\+?(UR\d+)?\+?(-?0x[0-9a-f]+)?\]`)

// memory returns the address that the text names; formed is false for a form that is
// not decoded.
func (p printed) memory(t *testing.T) memory {
	text := regexp.MustCompile(`desc\[UR\w+\]`).ReplaceAllString(p.text, "")
	if p.name == "LDGSTS" { // the first is in shared memory
		text = text[strings.Index(text, "],")+1:]
	}
	m := memory{kind: kinds[p.name], bytes: p.width(), base: noRegister, uniform: -1}
	at := address.FindStringSubmatch(text)
	if at == nil {
		t.Fatalf("%d %s: no address", p.sm, p.text)
	}
	if r, err := strconv.Atoi(strings.TrimPrefix(at[1], "R")); err == nil {
		m.base = uint8(r)
	}
	if r, err := strconv.Atoi(strings.TrimPrefix(at[3], "UR")); err == nil {
		m.uniform = r
	}
	if at[4] != "" {
		var err error
		if m.offset, err = strconv.ParseInt(at[4], 0, 64); err != nil {
			t.Fatal(p.text, err)
		}
	}
	// Another predicate than the instruction's may decide whether a lane accesses.
	last := p.operands[len(p.operands)-1]
	m.formed = at[2] != ".U32" && slices.Contains(p.suffixes, "E") && !strings.HasPrefix(last, "P") && !strings.HasPrefix(last, "!P")
	return m
}

func TestAccessesAreDecodedAsNVIDIAPrintsThem(t *testing.T) {
	accesses, others, mutants, unformed := map[int]int{}, map[int]int{}, 0, 0
	disassembled(t, func(p printed) {
		got, ok := decode(p.in, p.sm)
		_, is := kinds[p.name]
		is = is || p.name == "UBLKCP"
		if ok != is {
			t.Errorf("sm_%d %s: decoded as an access %v", p.sm, p.text, ok)
			return
		}
		if !ok {
			others[p.sm]++
			return
		}
		if strings.HasPrefix(p.name, "U") { // the accelerator's copies, of which only the kind is known
			want := kinds[p.name]
			if p.name == "UBLKCP" {
				want = map[string]AccessKind{"S": AccessWrite, "G": AccessRead}[p.suffixes[1]]
			}
			if got.formed || got.kind != want {
				t.Errorf("sm_%d %s: %+v", p.sm, p.text, got)
			}
			accesses[p.sm]++
			return
		}
		want := p.memory(t)
		switch {
		case !got.formed && p.mutant: // nothing is claimed of it
			unformed++
			return
		case p.mutant && want.bytes == 0:
			want.bytes = got.bytes
		}
		if got != want {
			t.Errorf("sm_%d %016x%016x %s\n got %+v\nwant %+v", p.sm, p.in[0], p.in[1], p.text, got, want)
		}
		if p.mutant {
			mutants++
		} else {
			accesses[p.sm]++
		}
	})
	t.Logf("accesses of each architecture %v, other instructions %v; mutants %d, and %d of a form that is not decoded", accesses, others, mutants, unformed)
	for _, sm := range []int{75, 80, 86, 89, 90, 100, 120} {
		if accesses[sm] < 200 || others[sm] < 100 {
			t.Errorf("sm_%d: only %d accesses, %d others", sm, accesses[sm], others[sm])
		}
	}
}

func TestWhatAnInstructionMayChangeIsAtLeastWhatNVIDIAPrints(t *testing.T) {
	register, predicate := regexp.MustCompile(`^(U?)R(\d+|Z)(?:\.reuse)?$`), regexp.MustCompile(`^U?P(\d|T)$`)
	disassembled(t, func(p printed) {
		e := effectOf(p.in, p.sm)
		if e.anything {
			return
		}
		stores := []string{"ST", "STG", "STS", "STL", "RED", "REDG", "LDGSTS", "SUST", "CCTL", "CCTLL"}
		if slices.Contains(stores, p.name) {
			return
		}
		count := 1
		for _, s := range append(p.suffixes, p.name) {
			switch s {
			case "64", "F64", "S64", "WIDE", "F32x2", "F16x4", "BF16x4", "DADD", "DMUL", "DFMA":
				count = 2
			case "128", "F32x4", "F16x8", "BF16x8":
				count = 4
			}
		}
		if p.name == "F2I" && !slices.Contains(p.suffixes, "S64") && !slices.Contains(p.suffixes, "U64") {
			count = 1
		}
		// What is written stands first: one register with predicates behind it, or
		// predicates, and with some names a register behind those.
		written := false
		for i, o := range p.operands {
			m := register.FindStringSubmatch(o)
			switch {
			case predicate.MatchString(o):
				if n := o[len(o)-1]; n != 'T' && e.predicates>>(n-'0')&1 == 0 {
					t.Errorf("sm_%d %s: %s is not said to change", p.sm, p.text, o)
				}
				continue
			case m == nil || written || i > 0 && !slices.Contains([]string{"SHFL", "ATOM", "ATOMG", "ATOMS", "QSPC", "LOP3"}, p.name):
				return
			}
			written = true
			first, _ := strconv.Atoi(m[2])
			for r := first; r < first+count && m[2] != "Z"; r++ {
				if m[1] == "U" && !e.uniform || m[1] == "" && !e.touches(uint8(r)) {
					t.Errorf("sm_%d %s: %sR%d is not said to change: %+v", p.sm, p.text, m[1], r, e)
				}
			}
		}
	})
}

func TestBranchesAreDecodedAsNVIDIAPrintsThem(t *testing.T) {
	n := 0
	disassembled(t, func(p printed) {
		_, distance, ok := strings.Cut(p.text, " rel ")
		if !ok {
			return
		}
		n++
		c := code{all: []instruction{p.in}, sm: p.sm}
		to, jumps, _, _ := c.flow(0)
		if !jumps || fmt.Sprint((to-1)*instructionSize) != distance {
			t.Errorf("sm_%d %016x%016x %s: goes to %d, %v", p.sm, p.in[0], p.in[1], p.text, (to-1)*instructionSize, jumps)
		}
	})
	if n < 500 {
		t.Errorf("only %d branches", n)
	}
}

// value returns what an operand of 32 bits, or if wide of 64, is in a lane where
// register n holds pattern(n) and constant bank 0 holds at each offset a number made of
// it.
func value(o string, wide bool) (uint64, bool) {
	o = strings.TrimSuffix(o, ".reuse")
	if rest, ok := strings.CutPrefix(o, "-"); ok && !strings.HasPrefix(o, "-0x") {
		v, known := value(rest, wide)
		return uint64(-uint32(v)), known && !wide
	}
	n := regexp.MustCompile(`^(U?)R(\d+)$`).FindStringSubmatch(o)
	c := regexp.MustCompile(`^c\[0x0\]\[(0x[0-9a-f]+)\]$`).FindStringSubmatch(o)
	switch {
	case o == "RZ" || o == "URZ" || o == "!PT":
		return 0, true
	case strings.HasPrefix(o, "P") || strings.HasPrefix(o, "!P"):
		n := uint64(o[len(o)-1] - '0') // odd ones are true
		return n&1 ^ uint64(len(o)-2), true
	case n != nil:
		r, _ := strconv.Atoi(n[2])
		if n[1] == "U" {
			r += 1000
		}
		lo, hi := uint64(pattern(r)), uint64(pattern(r+1))
		if wide {
			return hi<<32 | lo, true
		}
		return lo, true
	case c != nil:
		at, _ := strconv.ParseUint(c[1], 0, 64)
		if at < 0x160 || at+8 > 0x1160 {
			return 0, false
		}
		lo, hi := uint64(pattern(int(at))), uint64(pattern(int(at+4)))
		if wide {
			return hi<<32 | lo, true
		}
		return lo, true
	}
	v, err := strconv.ParseInt(o, 0, 64)
	return uint64(uint32(v)), err == nil && !wide
}

func pattern(n int) uint32 { return uint32(n+1) * 2654435761 }

func TestRegistersAreComputedAgainAsNVIDIAPrintsTheInstructions(t *testing.T) {
	l := &lane{preds: make([]uint32, 8), thread: [3]uint32{1, 2, 3}}
	r := &replay{asZeroAt: -1, lane: l, params: constants{at: 0x160}, block: [3]uint32{4, 5, 6}}
	special := map[string]uint64{"SR_TID.X": 1, "SR_TID.Y": 2, "SR_TID.Z": 3, "SR_CTAID.X": 4, "SR_CTAID.Y": 5, "SR_CTAID.Z": 6}
	for i := range 256 {
		l.regs = append(l.regs, pattern(i))
		r.uregs = append(r.uregs, pattern(i+1000))
	}
	for i := 0x160; i < 0x1160; i += 4 {
		r.params.data = append(r.params.data, 0, 0, 0, 0)
		le.PutUint32(r.params.data[i-0x160:], pattern(i))
	}
	for i := range l.preds {
		l.preds[i] = uint32(i & 1)
	}
	computed := map[string]int{}
	disassembled(t, func(p printed) {
		r.c, r.steps = &code{all: []instruction{p.in}, targets: make([]bool, 2), sm: p.sm}, 0
		got, wide, ok := r.result(0)
		if !ok {
			return
		}
		name := strings.Join(append([]string{p.name}, p.suffixes...), ".")
		var want uint64
		known := true
		carries := false
		for len(p.operands) > 1 && strings.HasPrefix(p.operands[1], "P") {
			carries = carries || p.operands[1] != "PT"
			p.operands = slices.Delete(p.operands, 1, 2)
		}
		operand := func(i int, wide bool) uint64 {
			if len(p.operands) <= i {
				known = false
				return 0
			}
			v, ok := value(p.operands[i], wide)
			known = known && ok
			return v
		}
		switch name {
		case "MOV", "LDC":
			want = operand(1, false)
			known = known && len(p.operands) == 2
		case "S2R":
			want, known = special[p.operands[1]]
		case "LDC.64":
			want = operand(1, true)
		case "IMAD", "IMAD.MOV.U32", "IMAD.MOV", "IMAD.IADD", "IMAD.SHL.U32", "IMAD.SHL", "IMAD.U32":
			want = uint64(uint32(operand(1, false)*operand(2, false) + operand(3, false)))
			got = uint64(uint32(got))
		case "IMAD.WIDE.U32":
			want = operand(1, false)*operand(2, false) + operand(3, true)
		case "IMAD.WIDE":
			want = uint64(int64(int32(operand(1, false)))*int64(int32(operand(2, false)))) + operand(3, true)
		case "IMAD.X":
			want = uint64(uint32(operand(1, false)*operand(2, false) + operand(3, false) + operand(4, false)))
			got = uint64(uint32(got))
		case "IADD3":
			want = operand(1, false) + operand(2, false) + operand(3, false)
		case "VIADD":
			want = uint64(uint32(operand(1, false) + operand(2, false)))
		case "IADD3.X":
			want = operand(1, false) + operand(2, false) + operand(3, false) + operand(4, false)
			if len(p.operands) > 5 {
				want += operand(5, false)
			}
		case "LEA":
			want = uint64(uint32(operand(1, false)<<operand(3, false))) + operand(2, false)
		case "LEA.HI":
			want = (operand(3, false)<<32|operand(1, false))<<operand(4, false)>>32 + operand(2, false)
		case "LEA.HI.X":
			want = (operand(3, false)<<32|operand(1, false))<<operand(4, false)>>32 + operand(2, false) + operand(5, false)
		case "SHF.L.U32":
			want = uint64(uint32(operand(1, false) << operand(2, false)))
		case "SHF.L.U64.HI":
			want = (operand(3, false)<<32 | operand(1, false)) << operand(2, false) >> 32
		case "SHF.R.U64":
			want = uint64(uint32((operand(3, false)<<32 | operand(1, false)) >> operand(2, false)))
		case "SHF.R.U32.HI":
			want = operand(3, false) >> operand(2, false)
		case "SHF.R.S32.HI":
			want = uint64(uint32(int32(operand(3, false)) >> operand(2, false)))
		default:
			known = false
		}
		if name := p.name; name == "IADD3" || name == "LEA" {
			_, carry, _ := r.sum(0)
			if carries && carry < unknownCarry && uint64(carry) != want>>32 {
				t.Errorf("sm_%d %016x%016x %s: carries %d of %#x", p.sm, p.in[0], p.in[1], p.text, carry, want)
			}
			want = uint64(uint32(want))
		}
		if !known || got != want || wide != (strings.Contains(name, "WIDE") || name == "LDC.64") {
			t.Errorf("sm_%d %016x%016x %s: computed %#x, not %#x %v", p.sm, p.in[0], p.in[1], p.text, got, want, known)
		}
		computed[name]++
	})
	t.Log(computed)
	if computed["IMAD.WIDE"] < 20 || computed["IMAD.WIDE.U32"] < 20 || computed["LDC.64"] < 4 || computed["MOV"] < 10 || computed["S2R"] < 14 {
		t.Error(computed)
	}
}

// A register that only something was added to is known before that, and no other.
func TestWhatWasAddedIsTakenAway(t *testing.T) {
	add := instruction{0x0000001004047810, 0x000fc80007ffe0ff} // IADD3: R4 + 0x10
	with := func(in instruction, low, high uint64) instruction { return instruction{in[0] ^ low, in[1] ^ high} }
	for name, c := range map[string]struct {
		in   instruction
		want uint32 // 0 if it is not known
	}{
		"a number":                   {add, 0x100},
		"a number, on a condition":   {with(add, 0x7000^0x1000, 0), 0},
		"another register":           {with(add, 0x7810^0x7210^0x10<<32^5<<32, 0), 0x110 - 5},
		"itself":                     {with(add, 0x7810^0x7210^0x10<<32^4<<32, 0), 0},
		"to its contrary":            {with(add, 0, 1<<8), 0},
		"itself as the third":        {with(add, 0, 0xff^4), 0},
		"to another one":             {with(add, 4<<24^6<<24, 0), 0},
		"a multiple":                 {instruction{0x0000000104047824, 0x000fe400078e0205}, 0x110 - 5},  // IMAD.IADD: R4 + R5
		"three times itself":         {instruction{0x0000000304047824, 0x000fe400078e0205}, 0},          // IMAD: R4 * 3 + R5
		"a product":                  {instruction{0x0000000305047824, 0x000fe400078e0204}, 0x110 - 15}, // IMAD: R5 * 3 + R4
		"a product with itself":      {instruction{0x0000000304047824, 0x000fe400078e0204}, 0},
		"by an addition of two only": {instruction{0x0000001004047836, 0x000fc40000000000}, 0x100}, // VIADD: R4 + 0x10
	} {
		l := &lane{regs: make([]uint32, 8), preds: make([]uint32, 8)}
		l.regs[4], l.regs[5], l.regs[6] = 0x110, 5, 6
		r := &replay{asZeroAt: -1, c: &code{all: []instruction{c.in}, targets: make([]bool, 2), sm: 90}, next: 1, lane: l}
		if got, ok := r.register(4, 0); ok != (c.want != 0) || ok && got != c.want {
			t.Errorf("%s: it was %#x, %v, and not %#x", name, got, ok, c.want)
		}
	}
}
