package gputest

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/dev/proof"
	small "github.com/fencepost-gpu/fencepost/dev/proof/program"
)

// fencePrograms runs the programs of dev/proof, which elsewhere are
// judged by what arrives at the driver, with real kernels: each launch compares
// every word that it reads with what the program means it to find, and writes
// words that say which generation of memory and which operation they are of.
// Several host goroutines' steps are interleaved; one goroutine takes them.
type fencePrograms struct {
	b     *bench
	lanes []*streamLane
	// The rest is of the program under way.
	program small.Program
	blocks  []*valued
	freed   small.Set
	tickets []core.Ticket
	// steps counts those taken in all programs.
	steps uint64
}

const (
	fenceStreams = 5
	fenceWords   = 128
)

var fenceBounds = small.Bounds{Streams: fenceStreams, Blocks: 24, Ops: 40,
	Kinds: []small.Kind{small.Launch, small.Free, small.Sync, small.Abort, small.Record}}

func (b *bench) openFencePrograms() *fencePrograms {
	b.Helper()
	p := &fencePrograms{b: b}
	for range fenceStreams {
		l, err := b.Streams().Acquire(ctx, "program")
		must(b, err)
		counter, err := b.counter(l)
		must(b, err)
		// Or the simulated device takes what it has waited for, before the first use is recorded, for undeclared.
		must(b, b.Core().RecordBlockUse(ctx, counter.BlockID(), l.ID()))
		p.lanes = append(p.lanes, &streamLane{Lease: l, counter: counter})
	}
	return p
}

// end says how many words were wrong in all programs, and gives back all.
func (p *fencePrograms) end() (wrong uint64) {
	p.b.Helper()
	must(p.b, p.b.hw.Synchronize()) // without fences nothing else ends what adds to the counters
	for _, l := range p.lanes {
		n, err := p.b.mismatches(l.Lease, l.counter)
		must(p.b, err)
		wrong += n
		must(p.b, l.Release())
	}
	must(p.b, p.b.Drain(ctx))
	return wrong
}

// run takes the steps of the program that a seed stands for. Nothing is waited
// for at its end: programs follow each other closely, and take the memory that
// the ones before have freed.
func (p *fencePrograms) run(seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 0x66656e63))
	p.program = small.Draw(fenceBounds, rng.IntN)
	schedule := proof.DrawSchedule(p.program, 1+rng.IntN(3), rng.IntN)
	p.blocks, p.freed, p.tickets = p.blocks[:0], 0, make([]core.Ticket, len(p.program))
	for _, step := range schedule {
		p.steps++
		if err := p.take(step); err != nil {
			return fmt.Errorf("program %v\nschedule %v\nstep %v: %w", p.program, schedule, proof.Schedule{step}, err)
		}
	}
	for b, v := range p.blocks {
		if p.freed.Has(uint8(b)) {
			continue
		}
		if err := v.Free(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (p *fencePrograms) take(step proof.Step) error {
	o := p.program[step.Op]
	switch {
	case o.Kind == small.Alloc:
		w, err := p.b.tryAlloc(p.lanes[o.Stream].Lease, fenceWords, "program")
		p.blocks = append(p.blocks, &valued{words: w})
		return err
	case o.Kind == small.Free:
		p.freed |= 1 << o.Block // launches that are open may still use it
		return p.blocks[o.Block].Free(ctx)
	case o.Kind == small.Sync:
		return p.b.Streams().Synchronize(ctx, p.lanes[o.Stream].ID())
	case o.Kind == small.Record:
		return p.record(o, step)
	case step.Phase == proof.Enqueue:
		return p.enqueue(o, step)
	case step.Phase == proof.End && o.Kind == small.Abort:
		return p.b.Core().AbortUse(ctx, p.tickets[step.Op])
	case step.Phase == proof.End:
		return p.b.Core().FinishUse(ctx, p.tickets[step.Op])
	default:
		return p.prepare(o, step)
	}
}

func (p *fencePrograms) prepare(o small.Op, step proof.Step) error {
	var uses []core.Use
	for b := range o.Uses().All() {
		access := core.Read
		if o.Writes.Has(b) {
			access = core.ReadWrite
		}
		uses = append(uses, p.blocks[b].Use(access))
	}
	t, err := p.b.Core().PrepareUse(ctx, core.UseRequest{Stream: p.lanes[o.Stream].ID(), Launch: "program", Uses: uses})
	if step.Phase == proof.Refused {
		if !errors.Is(err, core.ErrStreamMisuse) {
			return fmt.Errorf("a launch that conflicts with an open one was answered with %w", err)
		}
		return nil
	}
	p.tickets[step.Op] = t
	return err
}

// enqueue compares what the launch reads or overwrites, and writes what it
// writes. What no launch has written yet is not compared.
func (p *fencePrograms) enqueue(o small.Op, step proof.Step) error {
	l := p.lanes[o.Stream]
	for b := range o.Uses().All() {
		v := p.blocks[b]
		n := driver.U64(fenceWords)
		if v.value != 0 {
			if err := p.b.check.Enqueue(l.Handle(), grid(fenceWords), v.Arg(), n, driver.U64(v.value), l.counter.Arg()); err != nil {
				return err
			}
		}
		if !o.Changes().Has(b) {
			continue
		}
		v.value = uint64(v.BlockID().Generation)<<16 | uint64(step.Op+1)
		if err := p.b.write.Enqueue(l.Handle(), grid(fenceWords), v.Arg(), n, driver.U64(v.value)); err != nil {
			return err
		}
	}
	return nil
}

// record enqueues a use that its caller has to order itself, by waiting for
// everything, and tells the runtime afterwards.
func (p *fencePrograms) record(o small.Op, step proof.Step) error {
	if step.Phase == proof.Begin {
		return errors.Join(p.b.hw.Synchronize(), p.enqueue(o, step))
	}
	return p.b.Core().RecordBlockUse(ctx, p.blocks[o.Block].BlockID(), p.lanes[o.Stream].ID())
}
