package gpucore

import (
	"bytes"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// random is a dump that can be written.
func random(r *rand.Rand) *Dump {
	three := func() [3]uint32 { return [3]uint32{r.Uint32(), r.Uint32N(9), r.Uint32N(9)} }
	d := &Dump{Devices: []Device{{Name: "made up", SM: writtenSM, PCIBus: r.Uint32N(256), PCIDev: r.Uint32N(32)}}}
	names := []string{"k", "_Z5mergePKfPfj", "later"}
	for i := range 1 + r.IntN(40) {
		g := Grid{ID: uint64(i)<<33 + r.Uint64N(9), Kernel: names[r.IntN(len(names))], Blocks: three(), Threads: three()}
		if n := r.IntN(200); n > 0 {
			g.Params = make([]byte, n)
			for k := range g.Params {
				g.Params[k] = byte(r.Uint32())
			}
		}
		d.Grids = append(d.Grids, g)
	}
	for sm := range r.IntN(8) {
		for range r.IntN(4) {
			f := Fault{SM: sm, Grid: r.IntN(len(d.Grids)), Exception: 14, Block: three()}
			a := accesses[r.IntN(len(accesses))]
			f.Kernel, f.Access = d.Grids[f.Grid].Kernel, Access{Kind: a.kind, Bytes: a.bytes, Known: true, Lowest: 1<<64 - 1}
			for range 1 + r.IntN(maxLanes) {
				l := Lane{three(), r.Uint64()}
				f.Access.Lanes = append(f.Access.Lanes, l)
				f.Access.Lowest, f.Access.Highest = min(f.Access.Lowest, l.Address), max(f.Access.Highest, l.Address)
			}
			f.Access.Address, f.Thread, f.Function = f.Access.Lanes[0].Address, f.Access.Lanes[0].Thread, f.Kernel
			d.Faults = append(d.Faults, f)
		}
	}
	return d
}

func TestADumpIsReadAsItWasWritten(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	chosen := cmp.Options{cmpopts.IgnoreFields(Grid{}, "Entry"), cmpopts.IgnoreFields(Fault{}, "PC", "Offset")}
	rounds := 200
	if testing.Short() {
		rounds = 25
	}
	for range rounds {
		want := random(r)
		var b bytes.Buffer
		if err := Write(&b, want); err != nil {
			t.Fatal(err)
		}
		got, err := Read(&b)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, chosen); diff != "" {
			t.Fatal(diff)
		}
	}
}

func TestWhatCannotBeWrittenIsAnError(t *testing.T) {
	good := func() *Dump {
		return &Dump{Devices: []Device{{}}, Grids: []Grid{{Kernel: "k"}},
			Faults: []Fault{{Kernel: "k", Exception: 14, Access: Access{Kind: AccessRead, Bytes: 4, Lanes: []Lane{{}}}}}}
	}
	if err := Write(io.Discard, good()); err != nil {
		t.Fatal(err)
	}
	if err := Write(&failing{}, good()); err == nil {
		t.Error("an error of the writer is lost")
	}
	for name, spoil := range map[string]func(*Dump){
		"no device":       func(d *Dump) { d.Devices = nil },
		"no grid":         func(d *Dump) { d.Faults[0].Grid = 1 },
		"no lane":         func(d *Dump) { d.Faults[0].Access.Lanes = nil },
		"33 lanes":        func(d *Dump) { d.Faults[0].Access.Lanes = make([]Lane, 33) },
		"three bytes":     func(d *Dump) { d.Faults[0].Access.Bytes = 3 },
		"an atomic byte":  func(d *Dump) { d.Faults[0].Access.Kind, d.Faults[0].Access.Bytes = AccessAtomic, 1 },
		"no access":       func(d *Dump) { d.Faults[0].Access.Kind = AccessUnknown },
		"nowhere to be":   func(d *Dump) { d.Faults[0].SM = -1 },
		"ended with lane": func(d *Dump) { d.Faults[0].Grid = -1 },
	} {
		d := good()
		spoil(d)
		if err := Write(io.Discard, d); err == nil {
			t.Errorf("%s: it was written", name)
		}
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
