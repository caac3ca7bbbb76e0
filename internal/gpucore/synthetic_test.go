package gpucore

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// made is a made-up dump of so many blocks on each of so many multiprocessors, with two warps each, all of which faulted at the first
// instruction of the kernel k.
func made(sm string, sms, blocks, lanes int, code ...instruction) *layout {
	d := &Dump{Devices: []Device{{SM: sm}}, Grids: []Grid{{ID: 7, Kernel: "k", Blocks: [3]uint32{99}, Threads: [3]uint32{64}}}}
	var warps [2]Access
	for i := range 2 * lanes {
		a := &warps[i/lanes]
		a.Lanes = append(a.Lanes, Lane{[3]uint32{uint32(32*(i/lanes) + i%lanes)}, 0x7f5500000000 + uint64(16*(i%lanes))})
	}
	for s := range sms {
		for k := range blocks {
			for _, a := range warps {
				d.Faults = append(d.Faults, Fault{SM: s, Kernel: "k", Exception: 14, Block: [3]uint32{uint32(k)}, Access: a})
			}
		}
	}
	return &layout{Dump: d, code: code}
}

// ended adds a fault of a warp that has ended to each multiprocessor from first up to below sms.
func (l *layout) ended(first, sms int) *layout {
	for s := first; s < sms; s++ {
		l.Faults = append(l.Faults, Fault{SM: s, Kernel: "k", Grid: -1, Exception: 14})
	}
	return l
}

const nop = 0x0000000000007918

// store128 is STG.E.128 desc[UR4][R2.64], R8 of sm_90, then what ends a kernel.
var store128 = []instruction{{0x0000000802007986, 0x000fe2000c101d04}, {nop, 0}, {0x000000000000794d, 0x000fea0003800000}}

func TestADumpOfAFullDeviceFitsIntoMemory(t *testing.T) {
	sms, blocks := 132, 32
	if testing.Short() {
		sms = 16
	}
	debug.FreeOSMemory()
	var peak atomic.Uint64
	sample := func() uint64 {
		s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
		metrics.Read(s)
		now := s[0].Value.Uint64() - s[1].Value.Uint64()
		peak.Store(max(peak.Load(), now))
		return now
	}
	before := sample()
	done, sampled := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(sampled)
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
				sample()
			}
		}
	}()
	r, w := io.Pipe()
	written := &counter{w: w}
	go func() {
		random := rand.New(rand.NewPCG(1, 2))
		full := made("sm_90", sms, blocks, 32, store128...)
		full.registers = func(b []byte) {
			for i := 0; i < 64; i += 8 { // one register of eight is as hard to compress as can be
				le.PutUint32(b[4*i:], random.Uint32())
			}
		}
		w.CloseWithError(writeDump(written, full))
	}()
	d, err := Read(r)
	close(done)
	<-sampled
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Faults) != maxFaults || d.MoreFaults != sms*blocks*2-maxFaults {
		t.Errorf("%d faults and %d more", len(d.Faults), d.MoreFaults)
	}
	for i, f := range d.Faults {
		want := fmt.Sprintf("k write 16 block %d thread %d at 0x7f5500000000 to 0x7f55000001f0 of 32", i/2%blocks, i%2*32)
		if got := fmt.Sprintf("%s %v %d block %d thread %d at %#x to %#x of %d", f.Kernel, f.Access.Kind, f.Access.Bytes, f.Block[0], f.Thread[0], f.Access.Lowest, f.Access.Highest, len(f.Access.Lanes)); got != want {
			t.Errorf("fault %d: %s %s", i, got, f.Access.Why)
		}
	}
	t.Logf("a dump of %d MiB was read within %d MiB of memory in all, %d MiB before", written.n.Load()>>20, peak.Load()>>20, before>>20)
	if peak.Load() > 64<<20 {
		t.Errorf("the process took %d MiB of memory", peak.Load()>>20)
	}
}

type counter struct {
	w io.Writer
	n atomic.Int64
}

func (c *counter) Write(b []byte) (int, error) {
	c.n.Add(int64(len(b)))
	return c.w.Write(b)
}

func TestAFaultOfAWarpThatHasEndedIsTheMultiprocessors(t *testing.T) {
	var b bytes.Buffer
	if err := writeDump(&b, made("sm_90", 0, 0, 0, store128...).ended(0, 70)); err != nil {
		t.Fatal(err)
	}
	d, err := Read(&b)
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Faults) != maxFaults || d.MoreFaults != 70-maxFaults || len(d.Grids) != 1 {
		t.Fatalf("%d faults and %d more, %d grids", len(d.Faults), d.MoreFaults, len(d.Grids))
	}
	if f := d.Faults[3]; f.SM != 3 || f.Grid != -1 || f.Kernel != "k" || f.Access.Kind != AccessWrite || f.Access.Known || !strings.Contains(f.Access.Why, "ended") {
		t.Errorf("%+v", f)
	}
}

func TestInputThatIsTooLargeIsAnError(t *testing.T) {
	if testing.Short() {
		t.Skip("reads 1 GiB; make proof runs it")
	}
	if _, err := Read(io.LimitReader(zeros{}, maxInput+1)); err == nil || !strings.Contains(err.Error(), "1024 MiB") {
		t.Error(err)
	}
	if _, err := Read(rand.NewChaCha8([32]byte{})); err == nil || !strings.Contains(err.Error(), "compressed") {
		t.Error(err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
