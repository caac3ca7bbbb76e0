package fragmentation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/audit"
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
	"github.com/fencepost-gpu/fencepost/traces"
)

func TestMain(m *testing.M) {
	audit.Listen(audit.Panic)
	goleak.VerifyTestMain(m)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// program plays a recorded program on a stack, with a launch that uses each block. The kernel
// touches nothing, so that gigabytes cost nothing.
type program struct {
	t      *testing.T
	s      *teststack.Stack
	kernel driver.Function
	leases map[uint64]*cuda.Lease
	live   map[uint64]core.BlockID
	bytes  uint64
	peak   uint64
	// tag names the block of a row.
	tag func(*alloctrace.Row) core.Tag
	// behind is how many allocations were refused until the device had done what was enqueued,
	// and refused how many were refused then.
	behind, refused int
}

func newProgram(t *testing.T, seed, limit uint64) *program {
	t.Helper()
	s := teststack.Open(t, teststack.Config{
		Sim:     sim.Config{Schedule: sim.Seeded(seed)},
		Pool:    &cuda.PoolConfig{Limit: limit},
		Async:   cuda.AsyncConfig{ReapInterval: -1},
		Streams: 8,
	})
	must(t, s.Sim.RegisterModule("nothing", sim.Kernel{Name: "touch_nothing", Run: func(*sim.Exec) {}}))
	m, err := s.Driver.ModuleLoad(driver.Image{Name: "nothing"})
	must(t, err)
	kernel, err := s.Driver.ModuleFunction(m, "touch_nothing")
	must(t, err)
	return &program{
		t: t, s: s, kernel: kernel, leases: map[uint64]*cuda.Lease{}, live: map[uint64]core.BlockID{},
		tag: func(*alloctrace.Row) core.Tag { return names.Untagged },
	}
}

func (p *program) allocate(row *alloctrace.Row) {
	p.t.Helper()
	l := p.leases[row.Stream]
	if l == nil {
		l = p.s.Lease(p.t, "recorded")
		p.leases[row.Stream] = l
	}
	req := core.Request{Bytes: row.Bytes, Stream: l.ID(), Tag: p.tag(row)}
	b, err := p.s.Runtime.Allocate(p.t.Context(), req)
	if errors.Is(err, core.ErrOutOfMemory) {
		must(p.t, p.s.Runtime.Drain(p.t.Context()))
		if b, err = p.s.Runtime.Allocate(p.t.Context(), req); err != nil {
			p.refused++
			return
		}
		p.behind++
	}
	must(p.t, err)
	p.live[row.Pointer] = b.ID
	p.bytes += row.Bytes
	p.peak = max(p.peak, p.bytes)
	must(p.t, p.s.Runtime.Launch(p.t.Context(), l.ID(), []core.Use{{Block: b.ID, Access: core.Write}}, func(context.Context) error {
		return p.s.Driver.Launch(&driver.Launch{Function: p.kernel, Stream: l.Handle(), Grid: driver.Dim{X: 1, Y: 1, Z: 1}, Block: driver.Dim{X: 1, Y: 1, Z: 1}})
	}))
}

func (p *program) free(row *alloctrace.Row) {
	p.t.Helper()
	id, ok := p.live[row.Pointer]
	if !ok {
		return
	}
	delete(p.live, row.Pointer)
	p.bytes -= row.Bytes
	_, err := p.s.Runtime.Deallocate(p.t.Context(), id)
	must(p.t, err)
}

func (p *program) play(rows []alloctrace.Row) {
	p.t.Helper()
	for i := range rows {
		switch row := &rows[i]; {
		case row.Action == alloctrace.Allocate && row.Bytes > 0:
			p.allocate(row)
		case row.Action == alloctrace.Free:
			p.free(row)
		}
		if i%100 == 0 { // what the reaper's tick does
			must(p.t, p.s.Runtime.ReapPending(p.t.Context()))
		}
	}
}

// freeAll frees what the recording left live.
func (p *program) freeAll() {
	p.t.Helper()
	for _, id := range p.live {
		_, err := p.s.Runtime.Deallocate(p.t.Context(), id)
		must(p.t, err)
	}
}

func load(t *testing.T, name string) []alloctrace.Row {
	t.Helper()
	f, err := traces.Open(name)
	must(t, err)
	trace, err := alloctrace.Read(name, f)
	must(t, err)
	must(t, f.Close())
	return trace.Rows
}

func seeds() uint64 {
	if testing.Short() {
		return 1
	}
	return 4
}

// bounds are reserved for each live byte, at most.
var bounds = map[string]float64{"gpt2": 1.02, "resnet": 1.04, "serving": 1.05, "tables": 1.06}

func TestThePoolReservesLittleMoreThanARecordedProgramHasLive(t *testing.T) {
	table := []string{"trace    seed live MiB reserved ratio takeovers steals remaps growths moved MiB"}
	for _, name := range traces.Names() {
		rows := load(t, name)
		for seed := range seeds() {
			t.Run(fmt.Sprintf("%s/seed=%d", name, seed), func(t *testing.T) {
				p := newProgram(t, seed, 0)
				p.play(rows)
				pool, err := p.s.Pool.PoolStats()
				must(t, err)
				p.freeAll()
				ratio, c := float64(pool.ReservedHigh)/float64(p.peak), p.s.Pool.Stats().OwnPool
				if ratio > bounds[name] {
					t.Errorf("%d bytes are reserved and %d live, %.3f for each: more than %.2f", pool.ReservedHigh, p.peak, ratio, bounds[name])
				}
				if shares := c.Takeovers.Count > 0 && c.Steals.Count > 0; shares != (len(p.leases) > 1) {
					t.Errorf("%d streams shared: %+v", len(p.leases), c)
				}
				table = append(table, fmt.Sprintf("%-8s %4d %8d %8d %5.3f %9d %6d %6d %7d %9d", name, seed, p.peak>>20, pool.ReservedHigh>>20, ratio,
					c.Takeovers.Count, c.Steals.Count, c.Remaps.Count, c.Growths.Count, c.Remaps.Bytes>>20))
			})
		}
	}
	t.Logf("peaks in MiB, and where memory was found:\n%s", strings.Join(table, "\n"))
}

// A pool that may hold a fiftieth more than a program has live at its peak refuses hardly any of its requests
// because pages are free in pieces behind work that the device has not done. The driver's pool would grant those.
func TestHardlyAnyRequestIsRefusedForTheDevicesSake(t *testing.T) {
	table := []string{"trace    seed allocations behind refused"}
	for _, name := range traces.Names() {
		rows := load(t, name)
		peak, n := peakOf(rows)
		for seed := range seeds() {
			p := newProgram(t, seed, peak+peak/50)
			p.play(rows)
			p.freeAll()
			if p.behind > 4 || p.refused > 2 {
				t.Errorf("%s, seed %d: of %d allocations %d were refused until the device was done, and %d for good", name, seed, n, p.behind, p.refused)
			}
			table = append(table, fmt.Sprintf("%-8s %4d %11d %6d %7d", name, seed, n, p.behind, p.refused))
		}
	}
	t.Logf("refused until the device was done, and for good:\n%s", strings.Join(table, "\n"))
}

// peakOf is how many bytes a program has live at most, and how often it allocates.
func peakOf(rows []alloctrace.Row) (peak uint64, allocations int) {
	live := map[uint64]uint64{}
	var bytes uint64
	for i := range rows {
		switch row := &rows[i]; {
		case row.Action == alloctrace.Allocate && row.Bytes > 0:
			live[row.Pointer] = row.Bytes
			bytes += row.Bytes
			peak = max(peak, bytes)
			allocations++
		case row.Action == alloctrace.Free:
			bytes -= live[row.Pointer]
			delete(live, row.Pointer)
		}
	}
	return peak, allocations
}
