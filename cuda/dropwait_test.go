package cuda_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
)

// dropPrograms are programs without a wait too many: none synchronises, so
// that nothing but the queued waits orders one stream after another.
var dropPrograms = map[string]func(*bench, []*cuda.Lease){
	"use of a fresh block elsewhere": func(b *bench, s []*cuda.Lease) {
		block := b.alloc(s[0], 256)
		b.launch(s[1], writes(block))
		b.free(block)
	},
	"write, read, write": func(b *bench, s []*cuda.Lease) {
		block := b.alloc(s[0], 256)
		b.launch(s[0], writes(block))
		b.launch(s[1], reads(block))
		b.launch(s[2], writes(block))
		b.free(block)
	},
	"one writer and many readers": func(b *bench, s []*cuda.Lease) {
		block := b.alloc(s[0], 256)
		for range 3 {
			b.launch(s[0], writes(block))
			for _, reader := range s[1:] {
				b.launch(reader, reads(block))
			}
		}
		b.free(block)
	},
	"chain": func(b *bench, s []*cuda.Lease) {
		x, y, z := b.alloc(s[0], 256), b.alloc(s[1], 256), b.alloc(s[2], 256)
		b.launch(s[0], writes(x))
		b.launch(s[1], reads(x), writes(y))
		b.launch(s[2], reads(x, y), writes(z))
		b.launch(s[3], reads(z), readWrites(x))
		b.free(x, y, z)
	},
	"ping-pong": func(b *bench, s []*cuda.Lease) {
		block := b.alloc(s[0], 256)
		b.launch(s[0], writes(block))
		for i := range 10 {
			b.launch(s[i%2], readWrites(block))
		}
		b.free(block)
	},
	"freed memory is used by another stream": func(b *bench, s []*cuda.Lease) {
		block := b.alloc(s[0], 256)
		b.launch(s[1], writes(block))
		b.launch(s[2], reads(block))
		b.free(block)
		heir := b.alloc(s[0], 256)
		b.launch(s[3], writes(heir))
		b.free(heir)
	},
	"retired under an open intent": func(b *bench, s []*cuda.Lease) {
		block := b.alloc(s[0], 256)
		b.launch(s[0], writes(block))
		ticket := b.prepare(s[1], reads(block))
		b.enqueue(s[1], reads(block))
		b.free(block)
		must(b, b.Runtime.FinishUse(ctx, ticket))
	},
	"freed after its stream was given up": func(b *bench, s []*cuda.Lease) {
		handle, err := b.Sim.StreamCreate()
		must(b, err)
		adopted, err := b.Streams.Adopt(handle, "test")
		must(b, err)
		block := b.alloc(adopted, 256)
		b.launch(adopted, writes(block))
		b.launch(s[1], reads(block))
		b.launch(adopted, reads(block))
		must(b, adopted.Release())
		must(b, b.Sim.StreamDestroy(handle))
		b.free(block)
	},
}

// randomProgram launches over a few blocks and streams.
func randomProgram(seed uint64) func(*bench, []*cuda.Lease) {
	return func(b *bench, s []*cuda.Lease) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var blocks []core.Block
		for range 5 {
			blocks = append(blocks, b.alloc(s[rng.IntN(len(s))], 256))
			b.launch(s[rng.IntN(len(s))], writes(blocks[len(blocks)-1]))
		}
		for range 30 {
			var uses []use
			for _, i := range rng.Perm(len(blocks))[:1+rng.IntN(3)] {
				access := []core.Access{core.Read, core.Write, core.ReadWrite}[rng.IntN(3)]
				uses = append(uses, use{blocks[i], access})
			}
			b.launch(s[rng.IntN(len(s))], uses)
		}
		b.free(blocks...)
	}
}

// TestNoWaitCanBeTakenAway drops each wait of each program in turn: the
// oracle must notice every one, and must be silent when none is dropped.
func TestNoWaitCanBeTakenAway(t *testing.T) {
	programs := map[string]func(*bench, []*cuda.Lease){}
	for name, program := range dropPrograms {
		programs[name] = program
	}
	seeds := uint64(12)
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		programs[fmt.Sprintf("random %d", seed)] = randomProgram(seed)
	}
	total := uint64(0)
	for name, program := range programs {
		t.Run(name, func(t *testing.T) {
			waits, findings := runDropping(t, program, 0)
			if waits == 0 || len(findings) > 0 {
				t.Fatalf("%d waits, findings %v", waits, findings)
			}
			for k := uint64(1); k <= waits; k++ {
				if _, findings := runDropping(t, program, k); len(findings) == 0 {
					t.Errorf("nobody noticed that wait %d of %d was dropped", k, waits)
				}
			}
			total += waits
		})
	}
	t.Logf("%d waits were dropped in turn", total)
}

// runDropping runs a program without its k-th wait.
func runDropping(t *testing.T, program func(*bench, []*cuda.Lease), k uint64) (waits uint64, findings []sim.Finding) {
	t.Helper()
	b := &bench{T: t}
	stack, err := teststack.New(teststack.Config{
		Sim: sim.Config{Bytes: 64 << 20, Schedule: sim.Seeded(k)}, Async: cuda.AsyncConfig{ReapInterval: -1},
		Wrap: func(d driver.Driver) driver.Driver { b.faults = drivertest.NewFaults(d); return b.faults },
	})
	must(t, err)
	b.Stack, b.kernel = stack, loadMix(t, stack.Sim)
	var leases []*cuda.Lease
	for range 4 {
		l, err := stack.Streams.Acquire(ctx, "test")
		must(t, err)
		leases = append(leases, l)
	}
	b.faults.DropWait(k)
	program(b, leases)
	waits = b.faults.Calls(drivertest.StreamWait)
	b.drain()
	for _, l := range leases {
		must(t, l.Release())
	}
	findings = stack.Sim.Findings()
	stack.Sim.ResetFindings()
	must(t, stack.Close())
	return waits, findings
}
