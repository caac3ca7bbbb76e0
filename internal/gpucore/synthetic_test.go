package gpucore

import (
	"bufio"
	"bytes"
	"encoding/binary"
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

// part is a section of a dump that is made up; its contents are made when written.
type part struct {
	kind, link, info, row uint32
	size                  int
	fill                  func(b []byte) // b is zero
}

// words is a part's contents: numbers of 32 bits, low to high.
func words(values ...uint32) (int, func([]byte)) {
	return 4 * len(values), func(b []byte) {
		for i, v := range values {
			binary.LittleEndian.PutUint32(b[4*i:], v)
		}
	}
}

// writeDump writes a dump as the driver does: contents, then headers with extended
// numbering. parts calls its argument with each section, twice the same ones; section
// 0 is not among them.
func writeDump(w io.Writer, parts func(func(part))) error {
	out := bufio.NewWriter(w)
	offset, count := uint64(headerSize), uint64(1)
	parts(func(p part) { offset, count = offset+uint64(p.size), count+1 })
	var h [headerSize]byte
	copy(h[:], "\x7fELF\x02\x01\x01\x33")
	binary.LittleEndian.PutUint16(h[16:], 4)
	binary.LittleEndian.PutUint16(h[18:], machineCUDA)
	binary.LittleEndian.PutUint64(h[40:], offset)
	binary.LittleEndian.PutUint16(h[58:], headerSize)
	binary.LittleEndian.PutUint16(h[62:], 0xffff)
	_, _ = out.Write(h[:]) // Flush returns the error
	buf := make([]byte, 1<<16)
	parts(func(p part) {
		b := buf[:p.size]
		clear(b)
		p.fill(b)
		_, _ = out.Write(b)
	})
	clear(h[:])
	binary.LittleEndian.PutUint64(h[32:], count)
	_, _ = out.Write(h[:])
	offset = headerSize
	parts(func(p part) {
		clear(h[:])
		binary.LittleEndian.PutUint32(h[4:], p.kind)
		binary.LittleEndian.PutUint64(h[24:], offset)
		binary.LittleEndian.PutUint64(h[32:], uint64(p.size))
		binary.LittleEndian.PutUint32(h[40:], p.link)
		binary.LittleEndian.PutUint32(h[44:], p.info)
		binary.LittleEndian.PutUint64(h[56:], uint64(p.row))
		_, _ = out.Write(h[:])
		offset += uint64(p.size)
	})
	return out.Flush()
}

const (
	codeAddress = 0x7f0000001000
	nop         = 0x0000000000007918
)

// image is a relocated module with a kernel k at codeAddress.
func image(code ...instruction) (int, func([]byte)) {
	const symbols, names, text = headerSize, headerSize + 48, headerSize + 64
	headers := text + len(code)*instructionSize
	return headers + 4*headerSize, func(b []byte) {
		le := binary.LittleEndian
		copy(b, "\x7fELF\x02\x01\x01\x33")
		le.PutUint16(b[18:], machineCUDA)
		le.PutUint64(b[40:], uint64(headers))
		le.PutUint16(b[58:], headerSize)
		le.PutUint16(b[60:], 4)
		symbol := b[symbols+24:]
		le.PutUint32(symbol, 1)
		symbol[4], symbol[5] = 0x12, 0x10
		le.PutUint64(symbol[8:], codeAddress)
		le.PutUint64(symbol[16:], uint64(len(code)*instructionSize))
		copy(b[names:], "\x00k\x00")
		for i, c := range code {
			le.PutUint64(b[text+i*instructionSize:], c[0])
			le.PutUint64(b[text+i*instructionSize+8:], c[1])
		}
		for i, h := range []struct{ kind, addr, offset, size, link, row uint64 }{
			{2, 0, symbols, 48, 2, 24}, {3, 0, names, 16, 0, 0}, {1, codeAddress, text, uint64(len(code) * instructionSize), 0, 0},
		} {
			at := b[headers+(i+1)*headerSize:]
			le.PutUint32(at[4:], uint32(h.kind))
			le.PutUint64(at[16:], h.addr)
			le.PutUint64(at[24:], h.offset)
			le.PutUint64(at[32:], h.size)
			le.PutUint32(at[40:], uint32(h.link))
			le.PutUint64(at[56:], h.row)
		}
	}
}

// device calls yield with the tables of a device: 1 to 7, the last is of its multiprocessors,
// with one grid of the kernel k.
func device(yield func(part), sm string, sms int, smError uint32, code ...instruction) {
	add := func(kind, link, row uint32, size int, fill func([]byte)) {
		yield(part{kind: kind, link: link, row: row, size: size, fill: fill})
	}
	add(secStrings, 0, 0, 16, func(b []byte) { copy(b[1:], sm) })
	row := make([]uint32, 18)
	row[4] = 1
	size, fill := words(row...)
	add(secDevices, 0, 72, size, fill)
	size, fill = words(make([]uint32, 10)...)
	add(secCtxs, 2, 40, size, fill)
	size, fill = words(0, 0)
	add(secModules, 3, 8, size, fill)
	size, fill = image(code...)
	add(secImage, 4, 0, size, fill)
	row = make([]uint32, 26)
	row[0], row[6], row[7], row[18], row[21] = 7, codeAddress&0xffffffff, codeAddress>>32, 99, 64
	size, fill = words(row...)
	add(secGrids, 2, 104, size, fill)
	add(secSMs, 2, 48, 48*sms, func(b []byte) {
		for i := range sms {
			at := b[48*i:]
			binary.LittleEndian.PutUint32(at, uint32(i))
			binary.LittleEndian.PutUint32(at[8:], smError)
			binary.LittleEndian.PutUint32(at[12:], 1)
			binary.LittleEndian.PutUint64(at[16:], codeAddress)
		}
	})
}

// running calls yield with the tables of blocks that run on a device, two warps each.
// Every warp faulted at the kernel's first instruction and stands at the second.
func running(yield func(part), sms, blocks, lanes int, registers func(b []byte)) {
	const smTable = 7
	index := uint32(smTable)
	add := func(kind, link, info, row uint32, size int, fill func([]byte)) uint32 {
		index++
		yield(part{kind, link, info, row, size, fill})
		return index
	}
	nothing := func([]byte) {}
	for s := range uint32(sms) {
		table := add(secBlocks, smTable, s, 24, 24*blocks, func(b []byte) {
			for i := range blocks {
				b[24*i], b[24*i+8] = 7, byte(i)
			}
		})
		for k := range uint32(blocks) {
			warps := add(secWarps, table, k, 48, 2*48, func(b []byte) {
				for i := range 2 {
					at := b[48*i:]
					binary.LittleEndian.PutUint64(at, codeAddress)
					binary.LittleEndian.PutUint32(at[12:], 1<<32-1)
					binary.LittleEndian.PutUint32(at[16:], 1<<32-1)
					at[24] = 1
				}
			})
			for i := range uint32(2) {
				add(secURegs, warps, i, 4, 256, nothing)
				add(secUPreds, warps, i, 4, 32, nothing)
				table := add(secLanes, warps, i, 56, 56*lanes, func(b []byte) {
					for l := range lanes {
						at := b[56*l:]
						binary.LittleEndian.PutUint64(at, codeAddress+instructionSize)
						binary.LittleEndian.PutUint64(at[8:], instructionSize)
						at[16], at[20], at[32] = byte(l), byte(32*i)+byte(l), 14
					}
				})
				for l := range uint32(lanes) {
					add(0x80000008, table, l, 24, 0, nothing)
					add(secRegs, table, l, 4, 4*64, func(b []byte) {
						registers(b)
						binary.LittleEndian.PutUint64(b[8:], 0x7f5500000000+uint64(16*l))
					})
					add(secPreds, table, l, 4, 32, nothing)
				}
			}
		}
	}
}

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
		err := writeDump(written, func(yield func(part)) {
			random := rand.New(rand.NewPCG(1, 2))
			device(yield, "sm_90", sms, 0, store128...)
			running(yield, sms, blocks, 32, func(b []byte) {
				for i := 0; i < 64; i += 8 { // one register of eight is as hard to compress as can be
					binary.LittleEndian.PutUint32(b[4*i:], random.Uint32())
				}
			})
		})
		w.CloseWithError(err)
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
	err := writeDump(&b, func(yield func(part)) { device(yield, "sm_90", 70, 14, store128...) })
	if err != nil {
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
