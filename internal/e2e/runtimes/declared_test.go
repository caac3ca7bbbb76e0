package runtimes_test

import (
	"context"
	"fmt"
	"math/rand/v2"
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

// declarer is a runtime with kernels that say nothing of what they touch, and a table of 64
// values that outlives jobs.
type declarer struct {
	*testing.T
	rt                      *fencepost.Runtime
	on                      *cuda.Lease
	inc, copy, deep, silent *cuda.Kernel // inc(x, n); copy(to, from, n); deep(p, n) increments what the address at p says
	table                   *cuda.Slice[uint32]
}

// tiers are those in which each case is tried: all, or those that differ most.
func tiers() []fencepost.GuardMode {
	if testing.Short() {
		return []fencepost.GuardMode{"off", "ledger", "hunt:bisect"}
	}
	return []fencepost.GuardMode{"off", "ledger", "sample", "sample:1", "hunt", "hunt:bisect", "hunt:unmap+delay"}
}

func newDeclarer(t *testing.T, backend fencepost.Backend, guard fencepost.GuardMode) *declarer {
	t.Helper()
	return declarerOn(t, nil, backend, guard)
}

// declarerOn is one over a device of the test's, unless that is nil.
func declarerOn(t *testing.T, device driver.Driver, backend fencepost.Backend, guard fencepost.GuardMode) *declarer {
	t.Helper()
	d := &declarer{T: t, rt: e2e.OpenDirty(t, fencepost.Config{Driver: device, Resource: backend, Guard: guard,
		Budget: 1 << 30})}
	inc := func(x *sim.Exec, at uint64, n uint32) {
		for i := range sim.ReadWriteSlice[uint32](x, at, int(n)) {
			sim.ReadWriteSlice[uint32](x, at, int(n))[i]++
		}
	}
	module := must.Get(d.rt.Load("declarer", nil,
		sim.Kernel{Name: "inc", Declare: func(a sim.Args) []sim.Range { return []sim.Range{sim.ReadWrites(a.Ptr(0), 4*uint64(a.U32(1)))} }, Run: func(x *sim.Exec) { inc(x, x.Args().Ptr(0), x.Args().U32(1)) }},
		sim.Kernel{Name: "copy", Declare: func(a sim.Args) []sim.Range {
			n := 4 * uint64(a.U32(2))
			return []sim.Range{sim.Writes(a.Ptr(0), n), sim.Reads(a.Ptr(1), n)}
		}, Run: func(x *sim.Exec) {
			n := int(x.Args().U32(2))
			copy(sim.WriteSlice[uint32](x, x.Args().Ptr(0), n), sim.ReadSlice[uint32](x, x.Args().Ptr(1), n))
		}},
		sim.Kernel{Name: "silent", Run: func(x *sim.Exec) { inc(x, x.Args().Ptr(0), x.Args().U32(1)) }},
		sim.Kernel{Name: "deep", Indirect: true, Run: func(x *sim.Exec) {
			inc(x, sim.ReadSlice[uint64](x, x.Args().Ptr(0), 1)[0], x.Args().U32(1))
		}}))(t)
	d.inc, d.copy, d.silent = must.Get(module.Kernel("inc"))(t), must.Get(module.Kernel("copy"))(t), must.Get(module.Kernel("silent"))(t)
	d.deep = must.Get(module.Kernel("deep"))(t)
	d.on = e2e.Lease(t, d.rt, "table")
	d.table = must.Get(cuda.Alloc[uint32](t.Context(), d.rt.Memory(), 64, cuda.AllocOptions{Stream: d.on.ID(), Tag: "table"}))(t)
	t.Cleanup(func() { _ = d.table.Free(context.Background()) }) // or Close would wait for it
	must.Do(t, cuda.Memset(t.Context(), d.table, d.on.ID(), 1), d.rt.Streams().Synchronize(t.Context(), d.on.ID()))
	return d
}

func (d *declarer) view(lo, hi int) *cuda.Slice[uint32] {
	d.Helper()
	v := must.Get(d.table.View(lo, hi))(d)
	d.Cleanup(func() { _ = v.Free(context.Background()) })
	return v
}

// job launches in a job, and waits for it.
func (d *declarer) job(k *cuda.Kernel, args ...fencepost.Arg) {
	d.Helper()
	must.Do(d, d.rt.Do(d.Context(), "job", func(j *fencepost.Job) error { return j.Launch(k, cuda.Blocks1D(64, 64), args...) }))
}

// launch is a launch by hand of what enqueue enqueues.
func (d *declarer) launch(uses []core.Use, enqueue func(driver.Stream) error) {
	d.Helper()
	must.Do(d, d.rt.LaunchNamed(d.Context(), "by hand", d.on.ID(), uses, func(context.Context) error { return enqueue(d.on.Handle()) }))
}

func (d *declarer) memset(s driver.Stream) error {
	return d.rt.Driver().MemsetAsync(d.table.Ptr()+16, 7, 32, s)
}

// other is a block besides the table.
func (d *declarer) other() *cuda.Slice[uint32] {
	d.Helper()
	s := must.Get(cuda.Alloc[uint32](d.Context(), d.rt.Memory(), 64, cuda.AllocOptions{Stream: d.on.ID(), Tag: "other"}))(d)
	must.Do(d, cuda.Memset(d.Context(), s, d.on.ID(), 1))
	d.Cleanup(func() { _ = s.Free(context.Background()) })
	return s
}

// undeclaredAccesses are launches that touch the table in a way that they do not declare, with what
// the finding says of them.
var undeclaredAccesses = map[string]struct {
	says string
	do   func(d *declarer)
}{
	"as a number": {"not declared", func(d *declarer) {
		d.job(d.inc, fencepost.Value(d.table.Ptr()), fencepost.Value(uint32(64)))
	}},
	"written, declared as read": {"read only", func(d *declarer) {
		d.job(d.inc, fencepost.Reads(d.table), fencepost.Value(uint32(64)))
	}},
	"beside the declared view": {"outside the part", func(d *declarer) {
		d.job(d.inc, fencepost.ReadWrites(d.view(0, 32)), fencepost.Value(uint32(33)))
	}},
	"before the declared view": {"outside the part", func(d *declarer) {
		d.launch([]core.Use{d.view(32, 64).Use(core.Write)}, d.memset)
	}},
	"by a twin that says nothing": {"is not declared;", func(d *declarer) {
		d.job(d.silent, fencepost.Value(d.table.Ptr()), fencepost.Value(uint32(64)))
	}},
	"through memory": {"not declared", func(d *declarer) {
		must.Do(d, d.rt.Do(d.Context(), "job", func(j *fencepost.Job) error {
			pointer, err := fencepost.Upload(j, []uint64{d.table.Ptr()})
			if err != nil {
				return err
			}
			return j.Launch(d.deep, cuda.Blocks1D(1, 1), fencepost.Reads(pointer), fencepost.Value(uint32(64)))
		}))
	}},
	"read by a copy of the driver's": {"not declared", func(d *declarer) {
		d.launch(nil, func(s driver.Stream) error { return d.rt.Driver().CopyToHostAsync(make([]byte, 256), d.table.Ptr(), s) })
	}},
	"filled by the driver": {"read only", func(d *declarer) {
		d.launch([]core.Use{d.table.Use(core.Read)}, d.memset)
	}},
	"between the halves of a launch": {"not declared", func(d *declarer) {
		ticket := must.Get(d.rt.Core().PrepareUse(d.Context(), core.UseRequest{Stream: d.on.ID(), Launch: "halves"}))(d)
		must.Do(d, d.inc.Enqueue(d.on.Handle(), cuda.Blocks1D(64, 64), d.table.Arg(), driver.U32(64)), d.rt.Core().FinishUse(d.Context(), ticket))
	}},
	"in a graph": {"not declared", func(d *declarer) {
		g := must.Get(d.on.Capture(d.Context(), "graph", []core.Use{d.other().Use(core.Write)}, d.memset))(d)
		must.Do(d, g.Launch(d.Context(), d.rt, d.on), g.Close())
	}},
	"recorded as a view": {"outside the part", func(d *declarer) {
		rec := core.NewStrictRecorder(d.on.ID()).Named("recorded")
		must.Do(d, rec.Write(d.view(0, 4)), rec.Preflight(d.Context(), d.rt), d.memset(d.on.Handle()), rec.Commit(d.Context(), d.rt))
	}},
	"freed behind it": {"not declared", func(d *declarer) { // which does not wait for what is not declared
		d.launch(nil, d.memset)
		must.Do(d, d.table.Free(d.Context()))
	}},
}

func TestTheSimulatedDeviceFindsWhatALaunchDoesNotDeclare(t *testing.T) {
	for name, access := range undeclaredAccesses {
		t.Run(name, func(t *testing.T) {
			for _, backend := range []fencepost.Backend{fencepost.Async, fencepost.Pool} {
				for _, guard := range tiers() {
					d := newDeclarer(t, backend, guard)
					victim := d.table.BlockID()
					access.do(d)
					must.Do(t, d.rt.Streams().Synchronize(t.Context(), d.on.ID()))
					found := slices.DeleteFunc(d.rt.Findings().Recent(), func(f core.Finding) bool { return f.Unproven || f.Kind != names.FindingUndeclaredAccess })
					if len(found) != 1 {
						t.Errorf("%s over %s: found %v", guard, backend, d.rt.Findings().Recent())
						continue
					}
					f := found[0]
					if f.Victim.ID.Generation != victim.Generation || f.Victim.Tag != "table" || !strings.Contains(f.Text, access.says) || len(f.Suspects) != 1 || f.Suspects[0].LaunchID == 0 {
						t.Errorf("%s over %s: %v", guard, backend, f)
					}
					if !strings.Contains(f.CallStack.Caller(), "declared_test.go") || !strings.Contains(f.Text, f.CallStack.Caller()) {
						t.Errorf("%s over %s: launched at %q: %s", guard, backend, f.CallStack.Caller(), f.Text)
					}
				}
			}
		})
	}
}

// steps are what a correct program does with memory, in all ways that there are.
var steps = []func(p *correct) error{
	func(p *correct) error { // a job with memory of its own, forks, and the shared slices
		return p.rt.Do(p.Context(), "job", func(j *fencepost.Job) error {
			own, err := fencepost.Upload(j, make([]uint32, 64))
			if err != nil {
				return err
			}
			fork, err := j.Fork()
			if err != nil {
				return err
			}
			shared := p.slice()
			n := fencepost.Value(uint32(min(64, shared.Len())))
			if err = fork.Launch(p.copy, cuda.Blocks1D(64, 64), fencepost.Writes(own), fencepost.Reads(shared), n); err == nil {
				err = j.Launch(p.inc, cuda.Blocks1D(64, 64), fencepost.ReadWrites(own), fencepost.Value(uint32(64)))
			}
			if err != nil {
				return err
			}
			_, err = fencepost.Download(j, own)
			return err
		})
	},
	func(p *correct) error { // a kernel over raw arguments
		s := p.slice()
		return p.inc.Launch(p.Context(), p.rt, p.stream(), cuda.Blocks1D(64, 64), []core.Use{s.Use(core.ReadWrite)}, s.Arg(), driver.U32(uint32(s.Len())))
	},
	func(p *correct) error { // two views of one block in one launch
		s := p.slice()
		lo, hi := must.Get(s.View(0, s.Len()/2))(p), must.Get(s.View(s.Len()/2, s.Len()))(p)
		err := p.copy.Launch(p.Context(), p.rt, p.stream(), cuda.Blocks1D(64, 64), []core.Use{lo.Use(core.Write), hi.Use(core.Read)}, lo.Arg(), hi.Arg(), driver.U32(uint32(lo.Len())))
		must.Do(p, lo.Free(p.Context()), hi.Free(p.Context()))
		return err
	},
	func(p *correct) error { return cuda.Memset(p.Context(), p.slice(), p.stream().ID(), 3) },
	func(p *correct) error {
		_, err := cuda.Download(p.Context(), p.slice(), p.stream().ID())
		return err
	},
	func(p *correct) error {
		from := p.slice()
		to := p.slice()
		if to == from || to.Len() < from.Len() {
			return nil
		}
		return cuda.CopyOnDevice(p.Context(), to, from, p.stream().ID())
	},
	func(p *correct) error { // the driver, between the two halves
		s, on := p.slice(), p.stream()
		return p.rt.LaunchNamed(p.Context(), "fill", on.ID(), []core.Use{{Block: s.BlockID(), Access: core.Write}}, func(context.Context) error {
			return p.rt.Driver().MemsetAsync(s.Ptr(), 5, s.Bytes(), on.Handle())
		})
	},
	func(p *correct) error { // a graph, twice
		s, on := p.slice(), p.stream()
		g, err := on.Capture(p.Context(), "graph", []core.Use{s.Use(core.ReadWrite)}, func(h driver.Stream) error {
			return p.inc.Enqueue(h, cuda.Blocks1D(64, 64), s.Arg(), driver.U32(uint32(s.Len())))
		})
		if err != nil {
			return err
		}
		must.Do(p, g.Launch(p.Context(), p.rt, on), g.Launch(p.Context(), p.rt, p.stream()))
		return g.Close()
	},
	func(p *correct) error { // addresses in memory
		s, on := p.slice(), p.stream()
		pointer := must.Get(cuda.Alloc[uint64](p.Context(), p.rt.Memory(), 1, cuda.AllocOptions{Stream: on.ID(), Tag: "pointer"}))(p)
		must.Do(p, cuda.CopyToDevice(p.Context(), pointer, on.ID(), []uint64{s.Ptr()}))
		must.Do(p, p.deep.Launch(p.Context(), p.rt, on, cuda.Blocks1D(1, 1), []core.Use{pointer.Use(core.Read), s.Use(core.ReadWrite)}, pointer.Arg(), driver.U32(uint32(s.Len()))))
		return pointer.Free(p.Context())
	},
	func(p *correct) error { // a recorder, and the driver's own memory, which is nobody's to declare
		s, on, d := p.slice(), p.stream(), p.rt.Driver()
		foreign := must.Get(d.MemAlloc(256))(p)
		rec := core.NewStrictRecorder(on.ID()).Named("recorded")
		must.Do(p, rec.Read(s), rec.Preflight(p.Context(), p.rt), d.CopyOnDeviceAsync(foreign, s.Ptr(), min(256, s.Bytes()), on.Handle()), rec.Commit(p.Context(), p.rt))
		return d.MemFree(foreign)
	},
	func(p *correct) error { // work that is recorded, while a launch is open on its stream or after it
		s, on := p.alloc(), p.stream()
		must.Do(p, p.rt.Streams().Synchronize(p.Context(), s.BlockID().AllocStream)) // its order is the program's
		t := must.Get(p.rt.Core().PrepareUse(p.Context(), core.UseRequest{Stream: on.ID(), Launch: "open"}))(p)
		must.Do(p, p.rt.Driver().MemsetAsync(s.Ptr(), 1, s.Bytes(), on.Handle()))
		do := []func() error{
			func() error { return p.rt.Streams().Synchronize(p.Context(), on.ID()) },
			func() error { return p.rt.Core().RecordBlockUse(p.Context(), s.BlockID(), on.ID()) },
			func() error { return p.rt.Core().FinishUse(p.Context(), t) },
		}
		p.rng.Shuffle(len(do), func(i, j int) { do[i], do[j] = do[j], do[i] })
		for _, step := range do {
			must.Do(p, step())
		}
		return s.Free(p.Context())
	},
	func(p *correct) error { // another block in the place of one
		i := p.rng.IntN(len(p.slices))
		must.Do(p, p.slices[i].Free(p.Context()))
		p.slices[i] = p.alloc()
		return nil
	},
}

// correct is a program without faults.
type correct struct {
	*declarer
	rng    *rand.Rand
	leases []*cuda.Lease
	slices []*cuda.Slice[uint32]
}

func (p *correct) stream() *cuda.Lease        { return p.leases[p.rng.IntN(len(p.leases))] }
func (p *correct) slice() *cuda.Slice[uint32] { return p.slices[p.rng.IntN(len(p.slices))] }

func (p *correct) alloc() *cuda.Slice[uint32] {
	p.Helper()
	on := p.stream().ID()
	s := must.Get(cuda.Alloc[uint32](p.Context(), p.rt.Memory(), 2+p.rng.IntN(1000), cuda.AllocOptions{Stream: on, Tag: "shared"}))(p)
	must.Do(p, cuda.Memset(p.Context(), s, on, 1))
	return s
}

func TestNoCorrectProgramHasAnUndeclaredAccess(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for i, backend := range []fencepost.Backend{fencepost.Async, fencepost.Pool} {
		for j, guard := range tiers() {
			t.Run(fmt.Sprintf("%s/%s", backend, guard), func(t *testing.T) {
				p := &correct{declarer: newDeclarer(t, backend, guard), rng: rand.New(rand.NewPCG(seed, uint64(i*8+j)))}
				for range 3 {
					p.leases = append(p.leases, e2e.Lease(t, p.rt, "correct"))
				}
				for range 8 {
					p.slices = append(p.slices, p.alloc())
				}
				// The first record tells that the program records what it, or a reap, has waited for.
				must.Do(t, p.rt.Streams().Synchronize(t.Context(), p.slices[0].BlockID().AllocStream), p.rt.Core().RecordBlockUse(t.Context(), p.slices[0].BlockID(), p.leases[0].ID()))
				for n := range 200 {
					step := p.rng.IntN(len(steps))
					if err := steps[step](p); err != nil {
						t.Fatalf("step %d, of kind %d: %v", n, step, err)
					}
				}
				must.Do(t, p.rt.Drain(t.Context()), p.table.Free(t.Context()))
				for _, s := range p.slices {
					must.Do(t, s.Free(t.Context()))
				}
				must.Do(t, p.rt.Drain(t.Context()))
				for _, f := range p.rt.Findings().Recent() {
					t.Errorf("a finding: %v", f)
				}
			})
		}
	}
}

// The kernels do not touch what the number says: no device would tell. Where an oracle tells of
// each touch nothing is suspected.
func TestANumberThatIsAnAddressIsSuspectedFromTheLedgerOn(t *testing.T) {
	for _, backend := range []fencepost.Backend{fencepost.Async, fencepost.Pool} {
		for _, guard := range tiers() {
			for name, launch := range map[string]func(d *declarer){
				"a job's": func(d *declarer) {
					d.job(d.inc, fencepost.Value(uint64(0)), fencepost.Value(uint32(0)), fencepost.Value(d.table.Ptr()+8))
				},
				"a kernel's": func(d *declarer) {
					must.Do(t, d.inc.Launch(t.Context(), d.rt, d.on, cuda.Blocks1D(1, 1), []core.Use{d.other().Use(core.Read)}, driver.U64(0), driver.U32(0), driver.U64(d.table.Ptr()+8)))
				},
				"of freed memory": func(d *declarer) {
					at := d.table.Ptr() + 8
					must.Do(t, d.table.Free(t.Context()), d.rt.Drain(t.Context()))
					d.job(d.inc, fencepost.Value(uint64(0)), fencepost.Value(uint32(0)), fencepost.Value(at))
				},
			} {
				judged := newDeclarer(t, backend, guard)
				launch(judged)
				if found := judged.rt.Findings().Recent(); len(found) > 0 {
					t.Errorf("%s, %s over %s, with an oracle: found %v", name, guard, backend, found)
				}
				d := declarerOn(t, e2e.Blind(t), backend, guard)
				victim := d.table.BlockID()
				launch(d)
				found := d.rt.Findings().Recent()
				if guard == "off" {
					if len(found) > 0 {
						t.Errorf("%s over %s: found %v", name, backend, found)
					}
					continue
				}
				if len(found) != 1 || found[0].Kind != names.FindingUndeclaredAccess || !found[0].Unproven || found[0].Victim.ID.Generation != victim.Generation {
					t.Errorf("%s, %s over %s: found %v", name, guard, backend, found)
				}
			}
		}
	}
}
