package runtimes_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry/incident"
)

// A late access of memory that is unmapped loses the context; beside that, it is
// named whose memory it was.
func TestTheFaultOfALateAccessNamesTheBlockThatWasThere(t *testing.T) {
	for _, unmapped := range []bool{true, false} {
		for kind, kernel := range map[core.FindingKind]func(x *sim.Exec){
			names.FindingUseAfterFreeWrite: func(x *sim.Exec) { x.Write(x.Args().Ptr(0), 8) },
			names.FindingUseAfterFreeRead:  func(x *sim.Exec) { x.Read(x.Args().Ptr(0), 8) },
		} {
			rt := e2e.OpenDirty(t, fencepost.Config{Guard: "hunt:unmap", Async: cuda.AsyncConfig{ReapInterval: -1}})
			must.Do(t, e2e.Simulated(rt).RegisterModule("late", sim.Kernel{Name: "late", Run: kernel}))
			l := e2e.Lease(t, rt, "late")
			victim := e2e.Allocate(t, rt, 4096, l.ID(), "victim")
			_ = e2e.Allocate(t, rt, 4096, l.ID(), "bystander")
			e2e.Free(t, rt, victim)
			must.Do(t, rt.Drain(t.Context()))
			at := victim.ID.Ptr + 64
			if !unmapped {
				at = 0xdead_0000
			}
			if err := strike(rt, l.Handle(), at); !errors.Is(err, core.ErrSticky) {
				t.Fatalf("the late access: %v", err)
			}
			if !unmapped {
				for _, f := range rt.Findings().Recent() {
					if f.Kind == kind {
						t.Errorf("an address that was nobody's: %v", f)
					}
				}
				continue
			}
			f := e2e.Single(t, rt, kind)
			e2e.Names(t, f, "sim-oracle", victim)
			if !strings.Contains(f.Text, "gone since unmap") {
				t.Errorf("the text is %q", f.Text)
			}
		}
	}
}

// strike runs the registered kernel "late" on an address, around the runtime.
func strike(rt *fencepost.Runtime, on driver.Stream, ptr uint64) error {
	m, err := rt.Driver().ModuleLoad(driver.Image{Name: "late"})
	if err != nil {
		return err
	}
	f, err := rt.Driver().ModuleFunction(m, "late")
	if err != nil {
		return err
	}
	if err := rt.Driver().Launch(&driver.Launch{Function: f, Stream: on, Args: []driver.Arg{driver.Ptr(ptr)}}); err != nil {
		return err
	}
	return rt.Driver().StreamSynchronize(on)
}

// The oracle knows addresses; what is reported knows the block.
func TestTheOracleNamesTheBlockThatIsUsedWithoutAFence(t *testing.T) {
	rt := e2e.OpenDirty(t, fencepost.Config{Guard: "off"})
	x, y := e2e.Lease(t, rt, "x"), e2e.Lease(t, rt, "y")
	b := e2e.Allocate(t, rt, 4096, x.ID(), "victim")
	later := e2e.Allocate(t, rt, 4096, x.ID(), "bystander")
	// Somebody needs the allocations to be ready, so that the event for that
	// lies before what is held.
	must.Do(t, rt.Launch(t.Context(), y.ID(), []core.Use{{Block: later.ID, Access: core.Write}}, func(context.Context) error { return nil }))
	release := e2e.Hold(t, rt, x.Handle())
	err := rt.Launch(t.Context(), x.ID(), []core.Use{{Block: b.ID, Access: core.Write}}, func(context.Context) error {
		return rt.Driver().MemsetAsync(b.ID.Ptr, 7, b.Requested, x.Handle())
	})
	must.Do(t, err)
	// Ordered behind both allocations by what is declared, but not behind
	// the write of the block that is used.
	if err := rt.Launch(t.Context(), y.ID(), []core.Use{{Block: later.ID, Access: core.Read}}, func(context.Context) error {
		return e2e.Memset(t.Context(), rt, b.ID.Ptr, b.Requested, y.Handle())
	}); err != nil {
		t.Fatal(err)
	}
	release()
	must.Do(t, rt.Streams().Synchronize(t.Context(), x.ID()))
	e2e.Names(t, e2e.Single(t, rt, names.FindingMissingFence), "sim-oracle", b)
	e2e.Free(t, rt, b, later)
}

func TestTheOracleNamesABlockThatIsUsedAfterItsFree(t *testing.T) {
	for kind, misuse := range map[core.FindingKind]func(*fencepost.Runtime, core.Block, driver.Stream) error{
		names.FindingUseAfterFreeWrite: func(rt *fencepost.Runtime, b core.Block, on driver.Stream) error {
			return e2e.Memset(context.Background(), rt, b.ID.Ptr, 64, on)
		},
		names.FindingUseAfterFreeRead: func(rt *fencepost.Runtime, b core.Block, on driver.Stream) error {
			return errors.Join(rt.Driver().CopyToHostAsync(make([]byte, 64), b.ID.Ptr, on), rt.Driver().StreamSynchronize(on))
		},
	} {
		t.Run(string(kind), func(t *testing.T) {
			rt := e2e.OpenDirty(t, fencepost.Config{Guard: "off"})
			s := e2e.Lease(t, rt, "s")
			b := e2e.Allocate(t, rt, 1<<20, s.ID(), "victim")
			e2e.Free(t, rt, b)
			must.Do(t, rt.Drain(t.Context()))
			must.Do(t, misuse(rt, b, s.Handle()))
			e2e.Names(t, e2e.Single(t, rt, kind), "sim-oracle", b)
		})
	}
}

func TestTheOracleNamesTheBlockThatIsUsedBeforeItIsReady(t *testing.T) {
	rt := e2e.OpenDirty(t, fencepost.Config{Guard: "off"})
	x, y := e2e.Lease(t, rt, "x"), e2e.Lease(t, rt, "y")
	release := e2e.Hold(t, rt, x.Handle())
	b := e2e.Allocate(t, rt, 4096, x.ID(), "victim")
	must.Do(t, e2e.Memset(t.Context(), rt, b.ID.Ptr, b.Requested, y.Handle()))
	release()
	e2e.Names(t, e2e.Single(t, rt, names.FindingUseBeforeAlloc), "sim-oracle", b)
	e2e.Free(t, rt, b)
}

// The newest of the blocks that had the address is the one meant.
func TestTheOracleTellsBlocksAtOneAddressApart(t *testing.T) {
	rt := e2e.OpenDirty(t, fencepost.Config{Guard: "off"})
	s := e2e.Lease(t, rt, "s")
	var last core.Block
	for _, tag := range []core.Tag{"first", "second", "third"} {
		b := e2e.Allocate(t, rt, 1<<20, s.ID(), tag)
		if last.ID.Ptr != 0 && b.ID.Ptr != last.ID.Ptr {
			t.Fatal("the device did not reuse the address: the test shows nothing")
		}
		e2e.Free(t, rt, b)
		must.Do(t, rt.Drain(t.Context())) // the stream keeps no block for one of the same tag
		last = b
	}
	must.Do(t, rt.Drain(t.Context()))
	must.Do(t, e2e.Memset(t.Context(), rt, last.ID.Ptr, 64, s.Handle()))
	e2e.Names(t, e2e.Single(t, rt, names.FindingUseAfterFreeWrite), "sim-oracle", last)
}

func TestTheGuardNamesVictimAndSuspect(t *testing.T) {
	var heard atomic.Int64
	rt := e2e.OpenDirty(t, fencepost.Config{Driver: e2e.Blind(t), Guard: "hunt",
		OnFinding: func(core.Finding) { heard.Add(1) }})
	s := e2e.Lease(t, rt, "s")
	b := e2e.Allocate(t, rt, 1000, s.ID(), "victim")
	var canary [1]byte // what is written there must differ from it
	err := errors.Join(rt.Driver().CopyToHostAsync(canary[:], b.ID.Ptr+b.Requested, s.Handle()), rt.Streams().Synchronize(t.Context(), s.ID()))
	must.Do(t, err)
	wrong := ^canary[0]
	err = rt.LaunchNamed(t.Context(), "off_by_one", s.ID(), []core.Use{{Block: b.ID, Access: core.Write}}, func(context.Context) error {
		return rt.Driver().MemsetAsync(b.ID.Ptr, wrong, b.Requested+1, s.Handle())
	})
	must.Do(t, err)
	e2e.Free(t, rt, b)
	must.Do(t, rt.Drain(t.Context()))
	f := e2e.Single(t, rt, names.FindingOutOfBoundsWrite)
	e2e.Names(t, f, "debugguard", b)
	if f.Offset != 1000 || f.BadBytes != 1 || f.Seen != wrong {
		t.Errorf("first bad byte at %d, %d bad, %#x seen", f.Offset, f.BadBytes, f.Seen)
	}
	text := f.String()
	for _, want := range []string{"off_by_one", "allocated at", "freed at", "TestTheGuardNamesVictimAndSuspect"} {
		if !strings.Contains(text, want) {
			t.Errorf("the finding lacks %q:\n%s", want, text)
		}
	}
	if heard.Load() != int64(rt.Findings().Total()) {
		t.Errorf("OnFinding heard %d of %d findings", heard.Load(), rt.Findings().Total())
	}
}

// What an on-call engineer sees of a bug: one line, which does without the rest.
func TestAFindingIsOneLineInTheLog(t *testing.T) {
	for _, guard := range []string{"hunt", "hunt:bisect"} {
		logger, text := e2e.LogOf()
		cfg := fencepost.Config{Driver: e2e.Blind(t), Guard: fencepost.GuardMode(guard), Incidents: t.TempDir()}
		cfg.Findings.Logger = logger
		cfg.TracerProvider = sdktrace.NewTracerProvider()
		rt := e2e.OpenDirty(t, cfg)
		others := e2e.Lease(t, rt, "others")
		unrelated := e2e.Allocate(t, rt, 64, others.ID(), "rows")
		for i := range 3 {
			e2e.Succeed(t, "launch", rt.LaunchNamed(t.Context(), fmt.Sprint("sort_", i), others.ID(), []core.Use{{Block: unrelated.ID, Access: core.Write}}, func(context.Context) error { return nil }))
		}
		b := e2e.Overrun(t, rt, "victim")
		e2e.Free(t, rt, unrelated)
		e2e.Succeed(t, "release", others.Release())
		var line string
		for l := range strings.Lines(text.String()) {
			if strings.Contains(l, "gpu memory finding") {
				if line != "" {
					t.Errorf("%s: more than one line:\n%s", guard, text)
				}
				line = l
			}
		}
		t.Log(line)
		f := e2e.Single(t, rt, names.FindingOutOfBoundsWrite)
		for _, want := range []string{
			"level=ERROR", "kind=oob-write", "source=debugguard", "tag=victim", fmt.Sprintf("generation=%d ", b.ID.Generation), "requested=1000 ", fmt.Sprintf("offset=%d ", f.Offset), fmt.Sprintf("bad_bytes=%d ", f.BadBytes),
			f.Suspicion(0) + ": off_by_one, stream ", ", trace ", fmt.Sprintf("suspects=%d ", len(f.Suspects)), "suspect_1.launch=off_by_one ", "suspect_1.trace_id=",
			`allocated_at="github.com/fencepost-gpu/fencepost/internal/e2e.Allocate `, "incident=" + f.Incident,
			map[bool]string{true: `freed_at="github.com/fencepost-gpu/fencepost/internal/e2e.Free `}[len(f.FreeStack) > 0], // a hunt that bisects may see it before the free
		} {
			if !strings.Contains(line, want) {
				t.Errorf("%s: the line lacks %q:\n%s", guard, want, line)
			}
		}
		e2e.Succeed(t, "flush", rt.Incidents().Flush(t.Context()))
		if in, err := incident.ReadFile(f.Incident); err != nil || in.Finding.Victim.Generation != uint64(b.ID.Generation) || in.Incomplete != "" {
			t.Errorf("%s: the file that the line names: %v, %+v", guard, err, in)
		}
		if _, err := rt.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
