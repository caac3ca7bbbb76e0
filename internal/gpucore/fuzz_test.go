package gpucore

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// check says what holds of every dump that is read.
func check(t *testing.T, d *Dump, err error) {
	if (d == nil) == (err == nil) {
		t.Fatal(d, err)
	}
	if d == nil {
		return
	}
	if len(d.Faults) > maxFaults || d.MoreFaults > 0 && len(d.Faults) < maxFaults {
		t.Error(len(d.Faults), d.MoreFaults)
	}
	for _, f := range d.Faults {
		a := f.Access
		if f.Grid < -1 || f.Grid >= len(d.Grids) || a.Known != (len(a.Lanes) > 0) || a.Known != (a.Why == "") || len(a.Lanes) > maxLanes || f.Exception.String() == "" {
			t.Errorf("%+v", f)
		}
		for _, l := range a.Lanes {
			if l.Address < a.Lowest || l.Address > a.Highest {
				t.Errorf("%+v", f)
			}
		}
	}
}

// small is a dump with two warps of two lanes.
func small(t testing.TB, sm string, code ...instruction) []byte {
	var b bytes.Buffer
	if err := writeDump(&b, made(sm, 1, 1, 2, code...).ended(1, 2)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func FuzzRead(f *testing.F) {
	whole := small(f, "sm_90", store128...)
	f.Add(whole)
	f.Add(whole[:len(whole)-100])
	f.Add(small(f, "sm_75", instruction{0x0000080034007986, 0x020fe2000c10e904}, instruction{nop, 0}))
	headers := binary.LittleEndian.Uint64(whole[40:])
	for i := range 24 { // the headers of the first sections lead to others, and too far
		b := bytes.Clone(whole)
		at := b[int(headers)+(i/3+1)*headerSize:]
		switch i % 3 {
		case 0:
			binary.LittleEndian.PutUint64(at[32:], 1<<63)
		case 1:
			binary.LittleEndian.PutUint32(at[40:], uint32(i/3+1))
		case 2:
			binary.LittleEndian.PutUint64(at[24:], headers)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := Read(bytes.NewReader(b))
		check(t, d, err)
	})
}

func FuzzCode(f *testing.F) {
	architectures := []string{"sm_75", "sm_80", "sm_90a", "sm_100", "sm_120", "sm_121f", "sm_70", "x"}
	n := 0
	instructions := []byte{}
	disassembled(f, func(p printed) {
		instructions = binary.LittleEndian.AppendUint64(instructions, p.in[0])
		instructions = binary.LittleEndian.AppendUint64(instructions, p.in[1])
		if n++; n%200 == 0 {
			f.Add(instructions, byte(n))
		}
		if n%20 == 0 {
			instructions = instructions[:0:0]
		}
	})
	f.Fuzz(func(t *testing.T, code []byte, sm byte) {
		var all []instruction
		for ; len(code) >= instructionSize && len(all) < 256; code = code[instructionSize:] {
			all = append(all, instruction{binary.LittleEndian.Uint64(code), binary.LittleEndian.Uint64(code[8:])})
		}
		d, err := Read(bytes.NewReader(small(t, architectures[int(sm)%len(architectures)], all...)))
		if err != nil {
			t.Fatal(err)
		}
		check(t, d, err)
	})
}
