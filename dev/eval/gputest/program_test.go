package gputest

import (
	"math/rand/v2"
	"slices"

	"github.com/fencepost-gpu/fencepost/cuda"
)

// program is a random run on several streams. Every word of a block is one
// value, which says who wrote it: after each step the device must hold what the
// steps leave when they are done one after the other. Kernels compare it there.
type program struct {
	b   *bench
	rng *rand.Rand
	// lanes are the streams of the moment. counters are those of all there
	// have been, and hold how many words were wrong.
	lanes    []*streamLane
	counters []*words
	blocks   []*valued
	copies   []*download
	// value is the last that was written: none comes twice.
	value uint64
}

// valued is a block and what each of its words must be; 0 before the first
// write.
type valued struct {
	*words
	value uint64
}

// download is a copy under way to page-locked memory.
type download struct {
	to    *cuda.HostBuffer[uint64]
	value uint64
}

const (
	programSteps  = 60
	programLanes  = 4
	programBlocks = 12
)

// runProgram runs one program and returns how many words were wrong.
func (b *bench) runProgram(seed uint64) uint64 {
	b.Helper()
	p := &program{b: b, rng: rand.New(rand.NewPCG(seed, 0x70726f67))}
	p.openLane(false)
	steps := []func(){p.write, p.write, p.write, p.write, p.copy, p.copy, p.copy, p.check, p.check, p.check,
		p.alloc, p.alloc, p.alloc, p.free, p.download, p.fill, p.changeLanes, p.reap}
	for range programSteps {
		steps[p.rng.IntN(len(steps))]()
	}
	return p.end()
}

func pick[T any](rng *rand.Rand, from []T) T { return from[rng.IntN(len(from))] }

func (p *program) lane() *streamLane { return pick(p.rng, p.lanes) }

// block is one that was written, or nil.
func (p *program) block() *valued {
	written := slices.DeleteFunc(slices.Clone(p.blocks), func(v *valued) bool { return v.value == 0 })
	if len(written) == 0 {
		return nil
	}
	return pick(p.rng, written)
}

func (p *program) alloc() {
	if len(p.blocks) == programBlocks {
		return
	}
	n := pick(p.rng, []int{1, 1 + p.rng.IntN(64), 1 + p.rng.IntN(4096), 1 << 16})
	p.blocks = append(p.blocks, &valued{words: p.b.alloc(p.lane().Lease, n, "program")})
}

func (p *program) free() {
	if len(p.blocks) == 0 {
		return
	}
	i := p.rng.IntN(len(p.blocks))
	must(p.b, p.blocks[i].Free(ctx))
	p.blocks = slices.Delete(p.blocks, i, i+1)
}

func (p *program) write() {
	if len(p.blocks) == 0 {
		p.alloc()
	}
	v := pick(p.rng, p.blocks)
	p.value++
	v.value = p.value << 16
	must(p.b, p.b.doWrite(p.lane().Lease, v.words, v.value))
}

// fill writes by the driver's own means: every byte is the same.
func (p *program) fill() {
	if v := p.block(); v != nil {
		value := byte(1 + p.rng.IntN(255))
		v.value = uint64(value) * 0x0101010101010101
		must(p.b, cuda.Memset(ctx, v.words, p.lane().ID(), value))
	}
}

// copy makes a block what another was when this step came, and a little more.
func (p *program) copy() {
	from := p.block()
	if from == nil {
		return
	}
	to := pick(p.rng, p.blocks)
	if to == from || to.Len() > from.Len() {
		return // a part of to would keep its value
	}
	add := uint64(1 + p.rng.IntN(100))
	must(p.b, p.b.doCopy(p.lane().Lease, to.words, from.words, add))
	to.value = from.value + add
}

func (p *program) check() {
	if v := p.block(); v != nil {
		l := p.lane()
		must(p.b, p.b.doCheck(l.Lease, v.words, v.value, l.counter))
	}
}

// download is looked at in the end.
func (p *program) download() {
	v := p.block()
	if v == nil || len(p.copies) == 8 {
		return
	}
	host, err := cuda.AllocHost[uint64](p.b.Memory(), min(v.Len(), 1<<12))
	must(p.b, err)
	must(p.b, cuda.CopyToHost(ctx, host.Values(), v.words, p.lane().ID()))
	p.copies = append(p.copies, &download{to: host, value: v.value})
}

func (p *program) reap() { must(p.b, p.b.ReapPending(ctx)) }
