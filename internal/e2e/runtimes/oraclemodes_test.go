package runtimes_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// judged is a program over a block of 640 bytes between two others, with kernels that say what they touch and do it.
type judged struct {
	*testing.T
	rt                          *fencepost.Runtime
	x, y                        *cuda.Lease
	left, block, right          core.Block
	read, write, panics, guilty *cuda.Kernel // (at, n); guilty reads
}

func newJudged(t *testing.T, backend fencepost.Backend, guard fencepost.GuardMode) *judged {
	t.Helper()
	p := &judged{T: t, rt: e2e.OpenDirty(t, fencepost.Config{Resource: backend, Guard: guard})}
	reads := func(a sim.Args) sim.Range { return sim.Reads(a.Ptr(0), uint64(a.U32(1))) }
	writes := func(a sim.Args) sim.Range { return sim.Writes(a.Ptr(0), uint64(a.U32(1))) }
	module := must.Get(p.rt.Load("judged", nil,
		sim.Kernel{Name: "read", Declare: func(a sim.Args) []sim.Range { return []sim.Range{reads(a)} },
			Run: func(x *sim.Exec) { x.Read(x.Args().Ptr(0), uint64(x.Args().U32(1))) }},
		sim.Kernel{Name: "write", Declare: func(a sim.Args) []sim.Range { return []sim.Range{writes(a)} },
			Run: func(x *sim.Exec) { clear(x.Write(x.Args().Ptr(0), uint64(x.Args().U32(1)))) }},
		sim.Kernel{Name: "guilty", Declare: func(a sim.Args) []sim.Range { return []sim.Range{reads(a)} },
			Run: func(x *sim.Exec) { x.Read(x.Args().Ptr(0), uint64(x.Args().U32(1))) }},
		sim.Kernel{Name: "panics", Run: func(*sim.Exec) { panic("planted") }},
	))(t)
	for name, k := range map[string]**cuda.Kernel{"read": &p.read, "write": &p.write, "panics": &p.panics, "guilty": &p.guilty} {
		*k = must.Get(module.Kernel(name))(t)
	}
	p.x, p.y = e2e.Lease(t, p.rt, "x"), e2e.Lease(t, p.rt, "y")
	for i, b := range []*core.Block{&p.left, &p.block, &p.right} {
		p.allocate(b, core.Tag([]string{"left", "block", "right"}[i]))
		p.launch("fill", p.x, p.write, []core.Use{{Block: b.ID, Access: core.Write}}, b.ID.Ptr, 640)
	}
	must.Do(t, p.rt.Streams().Synchronize(t.Context(), p.x.ID()))
	return p
}

func (p *judged) allocate(b *core.Block, tag core.Tag) {
	p.Helper()
	*b = e2e.Allocate(p.T, p.rt, 640, p.x.ID(), tag)
	id := b.ID
	p.Cleanup(func() { _, _ = p.rt.Deallocate(context.Background(), id) }) // or Close would wait for it
}

// launch enqueues kernel(at, n) in a launch that declares uses.
func (p *judged) launch(name string, on *cuda.Lease, k *cuda.Kernel, uses []core.Use, at uint64, n uint32) {
	p.Helper()
	p.launched(p.rt.LaunchNamed(p.Context(), name, on.ID(), uses, func(context.Context) error {
		return k.Enqueue(on.Handle(), cuda.Blocks1D(1, 1), driver.U64(at), driver.U32(n))
	}))
}

// launched takes the error of a launch: what is planted may fault before the launch ends.
func (p *judged) launched(err error) {
	p.Helper()
	if !errors.Is(err, core.ErrSticky) {
		must.Do(p, err)
	}
}

func (p *judged) uses(access core.Access) []core.Use {
	return []core.Use{{Block: p.block.ID, Access: access}}
}

// given launches guilty with a pointer, or a number, that is the block's address.
func (p *judged) given(at driver.Arg, uses []core.Use) {
	p.Helper()
	p.launched(p.guilty.Launch(p.Context(), p.rt, p.x, cuda.Blocks1D(1, 1), uses, at, driver.U32(64)))
}

// fill writes the block outside every launch.
func (p *judged) fill(on *cuda.Lease) {
	p.Helper()
	must.Do(p, p.rt.Driver().MemsetAsync(p.block.ID.Ptr, 0, 640, on.Handle()))
}

// free gives the block back. The other blocks stay.
func (p *judged) free() {
	p.Helper()
	must.Do(p, p.rt.Streams().Synchronize(p.Context(), p.x.ID()))
	e2e.Free(p.T, p.rt, p.block)
}

// judgedBugs are what the oracle sees: each with the kind of its finding, in one mode or another,
// the access, where the access begins in the block, the launch that does it, and whether it may be
// another's fault.
var judgedBugs = map[string]struct {
	kinds    []core.FindingKind
	access   core.Access
	offset   int64
	suspects int
	do       func(p *judged, bug bool)
	raw      bool // by a fill outside every launch, so that its order alone is judged
}{
	"a read behind": {in(names.FindingOutOfBoundsRead), core.Read, 640, 1, func(p *judged, bug bool) {
		p.launch("guilty", p.x, p.read, p.uses(core.Read), p.block.ID.Ptr, 640+onlyIf(bug, 64))
	}, false},
	"a read behind by one byte": {in(names.FindingOutOfBoundsRead), core.Read, 640, 1, func(p *judged, bug bool) {
		p.launch("guilty", p.x, p.read, p.uses(core.Read), p.block.ID.Ptr, 640+onlyIf(bug, 1))
	}, false},
	"a read far behind": {in(names.FindingOutOfBoundsRead), core.Read, 640, 1, func(p *judged, bug bool) {
		p.launch("guilty", p.x, p.read, p.uses(core.Read), p.block.ID.Ptr, 640+onlyIf(bug, 640))
	}, false},
	"a write behind": {in(names.FindingOutOfBoundsWrite), core.Write, 640, 1, func(p *judged, bug bool) {
		p.launch("guilty", p.x, p.write, p.uses(core.Write), p.block.ID.Ptr, 640+onlyIf(bug, 4))
	}, false},
	"a read before": {in(names.FindingUnderflow), core.Read, -16, 1, func(p *judged, bug bool) {
		p.launch("guilty", p.x, p.read, p.uses(core.Read), p.block.ID.Ptr-uint64(onlyIf(bug, 16)), 32)
	}, false},
	"a write before": {in(names.FindingUnderflow), core.Write, -16, 1, func(p *judged, bug bool) {
		p.launch("guilty", p.x, p.write, p.uses(core.Write), p.block.ID.Ptr-uint64(onlyIf(bug, 16)), 32)
	}, false},
	"a copy behind": {in(names.FindingOutOfBoundsRead), core.Read, 640, 1, func(p *judged, bug bool) {
		must.Do(p, p.rt.LaunchNamed(p.Context(), "guilty", p.x.ID(), p.uses(core.Read), func(context.Context) error {
			return p.rt.Driver().CopyToHostAsync(make([]byte, 640+onlyIf(bug, 8)), p.block.ID.Ptr, p.x.Handle())
		}))
		must.Do(p, p.rt.Streams().Synchronize(p.Context(), p.x.ID()))
	}, false},
	"a read after the free": {in(names.FindingUseAfterFreeRead), core.Read, 0, 1, func(p *judged, bug bool) {
		if bug {
			p.free()
			p.launch("guilty", p.x, p.read, nil, p.block.ID.Ptr, 64)
		}
	}, false},
	"a write after the free": {in(names.FindingUseAfterFreeWrite), core.Write, 0, 1, func(p *judged, bug bool) {
		if bug {
			p.free()
			p.launch("guilty", p.x, p.write, nil, p.block.ID.Ptr, 64)
		}
	}, false},
	"an undeclared write": {in(names.FindingUndeclaredAccess), core.Write, 0, 1, func(p *judged, bug bool) {
		access := core.Write
		if bug {
			access = core.Read
		}
		p.launch("guilty", p.x, p.write, p.uses(access), p.block.ID.Ptr, 640)
	}, false},
	"a race of an undeclared write": {in(names.FindingMissingFence), core.Write, 0, 2, func(p *judged, bug bool) {
		access := core.Write
		if bug {
			access = core.Read
		}
		p.launch("guilty", p.y, p.write, p.uses(access), p.block.ID.Ptr, 640)
		p.launch("innocent", p.x, p.read, p.uses(core.Read), p.block.ID.Ptr, 640)
	}, false},
	"a race with an earlier read": {in(names.FindingMissingFence), core.Write, 0, 2, func(p *judged, bug bool) {
		access := core.Write
		if bug {
			access = core.Read
		}
		p.launch("innocent", p.x, p.read, p.uses(core.Read), p.block.ID.Ptr, 640)
		p.launch("guilty", p.y, p.write, p.uses(access), p.block.ID.Ptr, 640)
	}, false},
	"a use before the allocation, by no launch": {in(names.FindingUseBeforeAlloc), core.Write, 0, 1, func(p *judged, bug bool) {
		release := e2e.Hold(p.T, p.rt, p.x.Handle())
		p.allocate(&p.block, "block")
		if bug {
			p.fill(p.y)
			must.Do(p, p.rt.Streams().Synchronize(p.Context(), p.y.ID()))
		}
		release()
	}, true},
	"a race with a free, by no launch": {in(names.FindingMissingFence, names.FindingUseAfterFreeWrite), core.Write, 0, 1, func(p *judged, bug bool) {
		release := e2e.Hold(p.T, p.rt, p.y.Handle())
		if bug {
			p.fill(p.y)
		}
		e2e.Free(p.T, p.rt, p.block)
		release()
	}, true},
	"a use before the allocation": {in(names.FindingUndeclaredAccess), core.Write, 0, 1, func(p *judged, bug bool) {
		release := e2e.Hold(p.T, p.rt, p.x.Handle())
		p.allocate(&p.block, "block")
		uses := p.uses(core.Write)
		if bug {
			uses = nil
		}
		p.launch("guilty", p.y, p.write, uses, p.block.ID.Ptr, 640)
		if bug {
			must.Do(p, p.rt.Streams().Synchronize(p.Context(), p.y.ID()))
		}
		release()
	}, false},
	"a race with a free": {in(names.FindingUndeclaredAccess, names.FindingUseAfterFreeWrite), core.Write, 0, 1, func(p *judged, bug bool) {
		release := e2e.Hold(p.T, p.rt, p.y.Handle())
		uses := p.uses(core.Write)
		if bug {
			uses = nil
		}
		p.launch("guilty", p.y, p.write, uses, p.block.ID.Ptr, 640)
		e2e.Free(p.T, p.rt, p.block)
		release()
	}, false},
	"an undeclared read": {in(names.FindingUndeclaredAccess), core.Read, 0, 1, func(p *judged, bug bool) {
		uses := p.uses(core.Read)
		if bug {
			uses = nil
		}
		p.launch("guilty", p.x, p.read, uses, p.block.ID.Ptr, 640)
	}, false},
	"an undeclared number": {in(names.FindingUndeclaredAccess), core.Read, 0, 1, func(p *judged, bug bool) {
		uses := p.uses(core.Read)
		if bug {
			uses = nil
		}
		p.given(driver.U64(p.block.ID.Ptr), uses)
	}, false},
	"an undeclared pointer": {in(names.FindingUndeclaredAccess), core.Read, 0, 1, func(p *judged, bug bool) {
		uses := p.uses(core.Read)
		if bug {
			uses = nil
		}
		p.given(driver.Ptr(p.block.ID.Ptr), uses)
	}, false},
	"a number of what was freed": {in(names.FindingUseAfterFreeRead), core.Read, 0, 1, func(p *judged, bug bool) {
		if bug {
			p.free()
			p.given(driver.U64(p.block.ID.Ptr), nil)
		}
	}, false},
	"a pointer to what was freed": {in(names.FindingUseAfterFreeRead), core.Read, 0, 1, func(p *judged, bug bool) {
		if bug {
			p.free()
			p.given(driver.Ptr(p.block.ID.Ptr), nil)
		}
	}, false},
	"a read far before": {in(names.FindingUnderflow), core.Read, -640, 1, func(p *judged, bug bool) {
		p.launch("guilty", p.x, p.read, p.uses(core.Read), p.block.ID.Ptr-uint64(onlyIf(bug, 640)), 640)
	}, false},
	"a read of nothing": {in(names.FindingStickyError), 0, 0, 1, func(p *judged, bug bool) {
		at := p.block.ID.Ptr
		if bug {
			at = 64
		}
		p.launch("guilty", p.x, p.read, p.uses(core.Read), at, 64)
	}, false},
	"a panic": {in(names.FindingStickyError), 0, 0, 1, func(p *judged, bug bool) {
		k := p.read
		if bug {
			k = p.panics
		}
		p.launch("guilty", p.x, k, p.uses(core.Read), p.block.ID.Ptr, 64)
	}, false},
	"a write into the red zone of another": {in(names.FindingOutOfBoundsWrite), core.Write, 640, 1, func(p *judged, bug bool) {
		p.launch("guilty", p.x, p.write, p.uses(core.Write), p.block.ID.Ptr, 640+onlyIf(bug, uint32(p.right.ID.Ptr-p.block.ID.Ptr)-648))
	}, false},
}

func in(kinds ...core.FindingKind) []core.FindingKind { return kinds }

func onlyIf(bug bool, n uint32) uint32 {
	if bug {
		return n
	}
	return 0
}

// The oracle sees each bug in every mode of the guard, over both backends, and tells once what was
// done, to which part of whose block, and by which launch at which line; and of right programs
// nothing.
func TestTheOracleSeesEachBugInEveryMode(t *testing.T) {
	modes := []fencepost.GuardMode{"off", "ledger", "sample", "sample:1", "hunt", "hunt:bisect", "hunt:delay", "hunt:unmap", "hunt:bisect+unmap"}
	if testing.Short() {
		modes = []fencepost.GuardMode{"off", "sample:1", "hunt:bisect", "hunt:unmap"}
	}
	for name, bug := range judgedBugs {
		for _, backend := range e2e.Backends() {
			for _, guard := range modes {
				for _, planted := range []bool{true, false} {
					t.Run(fmt.Sprintf("%s/%s/%s/%t", name, backend, guard, planted), func(t *testing.T) {
						p := newJudged(t, backend, guard)
						bug.do(p, planted)
						_ = p.rt.Streams().Synchronize(t.Context(), p.x.ID())
						_ = p.rt.Streams().Synchronize(t.Context(), p.y.ID())
						var found []core.Finding
						for _, f := range p.rt.Findings().Recent() {
							if f.Kind != names.FindingStickyError || slices.Contains(bug.kinds, f.Kind) { // what came of an access is told besides
								found = append(found, f)
							}
						}
						if !planted {
							if len(found) != 0 {
								t.Errorf("found %v", found)
							}
							return
						}
						if bug.raw && strings.Contains(string(guard), "unmap") && len(found) == 0 {
							return // memory comes and goes by calls of the host there, and one may have come in time
						}
						if len(found) != 1 || !slices.Contains(bug.kinds, found[0].Kind) {
							t.Fatalf("%d findings of kinds %s: %v", len(found), bug.kinds, p.rt.Findings().Recent())
						}
						f := found[0]
						if f.Kind == names.FindingStickyError { // of no block
							if !strings.Contains(f.Text, `"guilty"`) || !strings.Contains(f.Text, "oraclemodes_test.go:") {
								t.Errorf("it says %q", f.Text)
							}
							return
						}
						if f.Victim.Tag != "block" || f.Victim.ID != p.block.ID || f.Victim.Requested != 640 || f.Offset != bug.offset {
							t.Errorf("offset %d of %+v", f.Offset, f.Victim)
						}
						launch := "guilty"
						if bug.raw {
							launch = "memset"
						}
						if len(f.Suspects) != bug.suspects || f.Suspects[0].Launch != launch || (f.Suspects[0].LaunchID == 0) != bug.raw || f.Source == "sim-oracle" && f.Suspects[0].Access != bug.access {
							t.Errorf("suspects %v", f.Suspects)
						}
						if is := f.Suspicion(0) == "culprit"; is != (bug.suspects == 1) {
							t.Errorf("the first is a %s", f.Suspicion(0))
						}
						if at := strings.Join(f.CallStack.Lines(), "\n"); !strings.Contains(at, "oraclemodes_test.go") || !strings.Contains(f.Text, f.CallStack.Caller()) {
							t.Errorf("it says %q, and was called at\n%s", f.Text, at)
						}
					})
				}
			}
		}
	}
}
