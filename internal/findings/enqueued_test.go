package findings

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/gpucore"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
)

// A kernel is of the launch in flight that enqueued it with those parameters; where others may have done that, it is not said.
func TestAKernelIsOfTheLaunchThatEnqueuedIt(t *testing.T) {
	ctx := t.Context()
	s := teststack.Open(t, teststack.Config{Pool: &cuda.PoolConfig{}, Async: cuda.AsyncConfig{ReapInterval: -1}})
	q := new(Enqueued)
	l, err := s.Streams.Acquire(ctx, "test")
	must.Do(t, err)
	b, err := s.Runtime.Allocate(ctx, core.Request{Bytes: 4096, Stream: l.ID()})
	must.Do(t, err)
	release, err := s.Sim.Hold(l.Handle())
	must.Do(t, err)
	kernel := func(args ...driver.Arg) *driver.Launch {
		return &driver.Launch{Stream: l.Handle(), Grid: driver.Dim{X: 2}, Block: driver.Dim{X: 64, Y: 1, Z: 1}, Args: args}
	}
	launch := func(name string, k *driver.Launch) {
		t.Helper()
		must.Do(t, s.Runtime.LaunchNamed(ctx, name, l.ID(), []core.Use{{Block: b.ID, Access: core.Write}}, func(context.Context) error {
			q.Note(s.Streams, k, "k")
			return nil
		}))
	}
	grid := func(params ...any) *gpucore.Grid {
		g := &gpucore.Grid{Blocks: [3]uint32{2, 1, 1}, Threads: [3]uint32{64, 1, 1}}
		for _, p := range params {
			g.Params, _ = binary.Append(g.Params, binary.LittleEndian, p)
		}
		return g
	}
	is := func(what string, g *gpucore.Grid, want string) {
		t.Helper()
		from, sure := q.of("k", g)
		var names []string
		for _, u := range from.launches {
			names = append(names, u.Launch)
		}
		if from.outside {
			names = append(names, "outside")
		}
		if !sure {
			names = append(names, "?")
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s it is of %q, want %q", what, got, want)
		}
	}
	is("before anything was enqueued", grid(), "?")
	launch("first", kernel(driver.U64(1), driver.U32(7), driver.U64(2)))
	launch("second", kernel(driver.U64(1), driver.U32(7), driver.U64(3)))
	is("by the last parameter", grid(uint64(1), uint32(7), uint32(0), uint64(2)), "first")
	is("by the last parameter", grid(uint64(1), uint32(7), uint32(0), uint64(3)), "second")
	is("with other parameters", grid(uint64(1), uint32(7), uint32(0), uint64(4)), "?")
	is("with fewer", grid(uint64(1), uint32(7)), "?")
	is("without parameters", grid(), "?")
	wide := grid(uint64(1), uint32(7), uint32(0), uint64(2))
	wide.Threads[0] = 32
	is("with other threads", wide, "?")
	wide.Threads[0], wide.Blocks[0] = 64, 3
	is("with other blocks", wide, "?")
	is("by the kernel's name", nil, "second first")
	if from, sure := q.of("another", nil); sure {
		t.Errorf("another kernel is of %v", from)
	}
	launch("third", kernel(driver.U64(1), driver.U32(7), driver.U64(2)))
	is("of two alike", grid(uint64(1), uint32(7), uint32(0), uint64(2)), "third first")

	q.Note(s.Streams, kernel(driver.U64(9)), "k") // by nothing that the runtime knows
	is("enqueued beside the launches", grid(uint64(9)), "outside")
	is("enqueued beside the launches, by the name", nil, "third second first outside")
	must.Do(t, s.Runtime.LaunchNamed(ctx, "outer", l.ID(), []core.Use{{Block: b.ID, Access: core.Read}}, func(context.Context) error {
		return s.Runtime.LaunchNamed(ctx, "inner", l.ID(), []core.Use{{Block: b.ID, Access: core.Read}}, func(context.Context) error {
			q.Note(s.Streams, kernel(driver.U64(10)), "k")
			return nil
		})
	}))
	is("of two launches that were open at once", grid(uint64(10)), "?")

	launch("old", kernel(driver.U64(11)))
	is("of a launch that is kept", grid(uint64(11)), "old")
	for i := range 40 {
		launch(fmt.Sprint("more ", i), kernel(driver.U64(12)))
	}
	is("of a launch that is not kept any more", grid(uint64(11)), "?")
	is("enqueued before many launches", grid(uint64(9)), "outside")
	release()
	must.Do(t, s.Streams.Synchronize(ctx, l.ID()))
	is("when all are done", grid(uint64(12)), "?")
	is("enqueued beside the launches and done", grid(uint64(9)), "?")
	launch("new", kernel(driver.U64(12)))
	release, err = s.Sim.Hold(l.Handle())
	must.Do(t, err)
	launch("newer", kernel(driver.U64(11)))
	is("where the old one is done", grid(uint64(11)), "newer")
	release()

	g, err := l.Capture(ctx, "graph", nil, func(driver.Stream) error {
		q.Note(s.Streams, kernel(driver.U64(13)), "k")
		return nil
	})
	must.Do(t, err)
	is("of a graph", grid(uint64(13)), "?")
	must.Do(t, g.Close())
	_, err = s.Runtime.Deallocate(ctx, b.ID)
	must.Do(t, err)
	must.Do(t, l.Release())
}

// Of a warp that has ended a dump tells the kernel, and what enqueued that kernel knows with which parameters.
func TestAKernelWhoseWarpHasEndedIsKnownByWhatEnqueuedIt(t *testing.T) {
	ctx := t.Context()
	s := teststack.Open(t, teststack.Config{Pool: &cuda.PoolConfig{}, Async: cuda.AsyncConfig{ReapInterval: -1}})
	l, err := s.Streams.Acquire(ctx, "test")
	must.Do(t, err)
	victim, err := s.Runtime.Allocate(ctx, core.Request{Bytes: 4096, Stream: l.ID(), Tag: "victim", Isolated: true})
	must.Do(t, err)
	freed, err := s.Runtime.Deallocate(ctx, victim.ID)
	must.Do(t, err)
	must.Do(t, s.Runtime.Drain(ctx))
	freed.State = core.Freed
	release, err := s.Sim.Hold(l.Handle())
	must.Do(t, err)
	stack := Stack{Base: s.Backend, Released: slices.Values([]core.Block{freed}), Unmaps: true, Enqueued: new(Enqueued)}
	kernel := &driver.Launch{Stream: l.Handle(), Args: []driver.Arg{driver.U32(1), driver.Ptr(victim.ID.Ptr)}}
	stack.Enqueued.Note(s.Streams, kernel, "k")
	inFlight := []core.UseRecord{{LaunchID: 1, Launch: "k"}}
	explain := func(kernel string) core.Finding {
		return stack.explain(core.Finding{Kind: "sticky-error", Suspects: inFlight},
			&gpucore.Dump{Faults: []gpucore.Fault{{Grid: -1, Kernel: kernel, Exception: illegal,
				Access: gpucore.Access{Kind: gpucore.AccessWrite, Why: "it has ended"}}}})
	}
	if f := explain("k"); len(f.Suspects) != 0 || f.Victim.Tag != "victim" || !strings.Contains(f.Text, "outside the runtime's launches") {
		t.Errorf("enqueued by hand: %v", f)
	}
	other := *kernel
	other.Args = nil
	stack.Enqueued.Note(s.Streams, &other, "k")
	if f := explain("k"); f.Victim.Tag != "" {
		t.Errorf("of one of two: %v", f)
	}
	own, err := s.Runtime.Allocate(ctx, core.Request{Bytes: 4096, Stream: l.ID(), Tag: "own", Isolated: true})
	must.Do(t, err)
	must.Do(t, s.Runtime.LaunchNamed(ctx, "scatter", l.ID(), []core.Use{{Block: own.ID, Access: core.Write}}, func(context.Context) error {
		stack.Enqueued.Note(s.Streams, &driver.Launch{Stream: l.Handle(), Args: []driver.Arg{driver.Ptr(own.ID.Ptr)}}, "scatter")
		return nil
	}))
	_, err = s.Runtime.Deallocate(ctx, own.ID) // its memory stays until the launch is done
	must.Do(t, err)
	if f := explain("scatter"); f.Victim.Tag != "" || len(f.Suspects) != 1 || f.Suspects[0].Launch != "scatter" {
		t.Errorf("of a launch whose block is freed behind it: %v", f)
	}
	release()
	must.Do(t, s.Streams.Synchronize(ctx, l.ID()))
	must.Do(t, l.Release())
}

// Memory that a suspect declared is no candidate, and of lanes in different places none is named.
func TestABlockIsNamedOnlyWhereItIsCertain(t *testing.T) {
	in := func(generation core.Generation, by uint64, gone, unmapped bool) place {
		return place{ptr: 64, gone: gone, unmapped: unmapped,
			block: core.Finding{Victim: core.Block{ID: core.BlockID{Generation: generation}, Tag: "b"}, Uses: []core.UseRecord{{LaunchID: by}}}}
	}
	for _, by := range []uint64{1, 2} {
		f, text := core.Finding{Suspects: []core.UseRecord{{LaunchID: 1}}}, new(strings.Builder)
		access(&f, text, &gpucore.Access{Why: "it has ended"}, []place{in(1, by, true, true)}, nil)
		if named, declared := f.Victim.Tag == "b", by == 1; named == declared || strings.Contains(text.String(), "candidate") == declared {
			t.Errorf("used by %d: %v", by, text)
		}
	}
	none, live, freed, other, away := place{ptr: 8, beside: true}, in(1, 0, false, false), in(2, 0, true, false), in(3, 0, true, false), in(4, 0, true, true)
	beside := in(2, 0, false, false)
	beside.beside = true
	for i, c := range []struct {
		lanes []place
		want  int
	}{
		{[]place{live, away, none, freed}, 1}, {[]place{live, freed, freed}, 1}, {[]place{freed, other}, -1}, {[]place{freed, beside}, -1}, {[]place{live, none}, 1},
		{[]place{none, none}, -1}, {[]place{none, freed}, -1}, {[]place{beside, beside}, 0}, {[]place{live}, -1},
	} {
		if got := faulty(c.lanes); got != c.want {
			t.Errorf("case %d: lane %d, want %d", i, got, c.want)
		}
	}
	for _, o := range []origin{{outside: true}, {outside: true, launches: make([]core.UseRecord, 1)}, {launches: make([]core.UseRecord, 1)}} {
		f, text := core.Finding{Suspects: []core.UseRecord{{LaunchID: 7}}}, new(strings.Builder)
		o.tell(&f, text, core.Read)
		if says := strings.Contains(text.String(), "outside"); says != o.outside || len(f.Suspects) == 1 != !o.outside {
			t.Errorf("of %+v: %v, %v", o, text, f.Suspects)
		}
	}
}
