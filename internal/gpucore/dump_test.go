package gpucore

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// contents returns a dump of testdata. The driver 580.159 wrote them on an H200; the
// code of the driver's own modules has been overwritten with zeros.
func contents(t testing.TB, name string) []byte {
	file, err := os.Open(filepath.Join("testdata", name+".gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	z, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// numbers are parameters of a kernel.
func numbers(t *testing.T, values ...any) []byte {
	var b bytes.Buffer
	for _, v := range values {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func TestADumpNamesTheGridWithItsParameters(t *testing.T) {
	const bad, good, out = uint64(0x7f2150e00000), uint64(0x7f2150a00000), uint64(0x7f2150c00000)
	simple := func(first uint32) []byte { // of the kernels k_read and k_write
		return numbers(t, bad, good, out, first, uint32(0), uint64(0), uint64(0x7f2150801000))
	}
	for name, want := range map[string]Grid{
		"write":     {Kernel: "k_write", Params: simple(0), Blocks: [3]uint32{1, 1, 1}, Threads: [3]uint32{32, 1, 1}},
		"read-last": {Kernel: "k_read", Params: simple(4095), Blocks: [3]uint32{16, 1, 1}, Threads: [3]uint32{256, 1, 1}},
		"merge": {
			Kernel: "merge", Blocks: [3]uint32{4, 1, 1}, Threads: [3]uint32{128, 1, 1},
			Params: numbers(t, bad+0x1000, out, uint32(512), float32(2.5), uint64(0x1122334455667788), good, out+0x100000, uint32(3), uint32(0), 0.25, uint8(1)),
		},
	} {
		d, err := Read(bytes.NewReader(contents(t, name)))
		if err != nil {
			t.Fatal(name, err)
		}
		if len(d.Grids) != 1 {
			t.Fatal(name, d.Grids)
		}
		want.ID, want.Entry = 9, 0x7f21537a0000
		if diff := cmp.Diff(want, d.Grids[0]); diff != "" {
			t.Error(name, diff)
		}
		if diff := cmp.Diff([]Device{{Name: "NVIDIA H200", SM: "sm_90", PCIDev: 6}}, d.Devices); diff != "" || d.Driver != "580.159" || d.HasMemory {
			t.Error(name, diff, d.Driver, d.HasMemory)
		}
	}
}

func TestADumpSaysWhichAddressesTheFaultingInstructionAccessed(t *testing.T) {
	const a = uint64(0x7fc143e00000) // the address that the kernels f_ are given, which is not mapped
	type expected struct {
		kernel, function string
		kind             AccessKind
		bytes            uint32
		sms              int
		lowest, highest  uint64
		lanes            int
		block, thread    [3]uint32 // of the first
		why              string    // contains
	}
	for name, want := range map[string]expected{
		"write":      {kernel: "k_write", kind: AccessWrite, bytes: 4, sms: 1, lowest: 0x7f2150e00000, highest: 0x7f2150e0007c, lanes: 32},
		"write-over": {kernel: "k_wpure", kind: AccessWrite, bytes: 4, sms: 1, why: "the warp has ended"},
		"f_read":     {kernel: "f_read", kind: AccessRead, bytes: 4, sms: 1, lowest: 0x7fc141e00040, highest: 0x7fc141e000bc, lanes: 32},
		"read-last":  {kernel: "k_read", kind: AccessRead, bytes: 4, sms: 1, lowest: 0x7f2150a03f80, highest: 0x7f2150e00000 + 4*4095, lanes: 32, block: [3]uint32{15}, thread: [3]uint32{224}},
		"f_atom":     {kernel: "f_atom", kind: AccessAtomic, bytes: 4, sms: 1, lowest: a, highest: a + 31*12, lanes: 32},
		"merge":      {kernel: "merge", kind: AccessRead, bytes: 4, sms: 4, block: [3]uint32{2}, why: "overwritten"},
		"f_loopr":    {kernel: "f_loopr", kind: AccessRead, bytes: 4, sms: 1, lowest: a, highest: a + 31*4, lanes: 32},
		"f_two":      {kernel: "f_two", kind: AccessRead, bytes: 4, sms: 2, lowest: a + 256, highest: a + 256 + 31*4, lanes: 32},
		"f_cpa":      {kernel: "f_cpa", kind: AccessRead, bytes: 16, sms: 1, lowest: a, highest: a + 31*16, lanes: 32},
		"f_gen":      {kernel: "f_gen", kind: AccessWrite, bytes: 4, sms: 1, lowest: a + 20, highest: a + 20 + 31*4, lanes: 32},
		"f_half":     {kernel: "f_half", kind: AccessWrite, bytes: 4, sms: 1, lowest: a, highest: a + 11*4, lanes: 12, thread: [3]uint32{20}},
		"f_loopw":    {kernel: "f_loopw", kind: AccessWrite, bytes: 4, sms: 1, why: "in a loop"},
		"f_call":     {kernel: "f_call", function: "$f_call$_Z4deepPjj", kind: AccessWrite, bytes: 4, sms: 1, why: "called again"},
	} {
		d, err := Read(bytes.NewReader(contents(t, name)))
		if err != nil {
			t.Fatal(name, err)
		}
		if len(d.Faults) != want.sms || d.MoreFaults != 0 {
			t.Errorf("%s: %d faults and %d more", name, len(d.Faults), d.MoreFaults)
			continue
		}
		f := d.Faults[0]
		if want.function == "" {
			want.function = want.kernel
		}
		got := expected{f.Kernel, f.Function, f.Access.Kind, f.Access.Bytes, len(d.Faults), f.Access.Lowest, f.Access.Highest, len(f.Access.Lanes), f.Block, f.Thread, f.Access.Why}
		if f.Exception.String() != "warp illegal address" || f.Access.Known != (want.lanes > 0) || !strings.Contains(got.why, want.why) || (want.why == "") != (got.why == "") {
			t.Errorf("%s: %v, %+v", name, f.Exception, f.Access)
		}
		if got.why = want.why; got != want {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, want)
		}
		if f.Access.Known && (f.Access.Address != f.Access.Lanes[0].Address || f.Thread != f.Access.Lanes[0].Thread) {
			t.Errorf("%s: the first lane is %+v of %+v", name, f.Access.Lanes[0], f)
		}
	}
}

func TestWhichLaneFaultedTellItsAddress(t *testing.T) {
	d, err := Read(bytes.NewReader(contents(t, "read-last")))
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range d.Faults[0].Access.Lanes { // the last thread alone read what is not mapped, the rest what is
		want := Lane{[3]uint32{224 + uint32(i)}, 0x7f2150a00000 + 4*(15*256+224+uint64(i))}
		if i == 31 {
			want.Address += 0x400000
		}
		if l != want {
			t.Errorf("lane %d: %v, not %v", i, l, want)
		}
	}
}

func TestADumpWithoutAFaultHasNone(t *testing.T) {
	d, err := Read(bytes.NewReader(contents(t, "f_trap")))
	if err != nil || len(d.Faults) != 0 || d.Devices[0].SM != "sm_90" {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestADumpCutShortIsAnErrorAndNeverAPanic(t *testing.T) {
	whole := contents(t, "write")
	for n := 0; n < len(whole); n += 997 {
		if d, err := Read(bytes.NewReader(whole[:n])); err == nil || d != nil {
			t.Fatalf("%d of %d bytes: %v, %v", n, len(whole), d, err)
		}
	}
	slow := io.MultiReader(bytes.NewReader(whole[:5]), bytes.NewReader(whole[5:100000]), bytes.NewReader(whole[100000:]))
	if _, err := Read(slow); err != nil {
		t.Error("a dump in pieces:", err)
	}
}

func TestContentsOfMemoryAreNoticed(t *testing.T) {
	b := slices.Clone(contents(t, "write"))
	at := int(binary.LittleEndian.Uint64(b[40:]))
	for i := at; i < len(b); i += headerSize {
		if binary.LittleEndian.Uint32(b[i+4:]) == 0x80000014 { // the uniform predicates
			binary.LittleEndian.PutUint32(b[i+4:], 0x80000002)
		}
	}
	if d, err := Read(bytes.NewReader(b)); err != nil || !d.HasMemory {
		t.Errorf("%+v, %v", d, err)
	}
}
