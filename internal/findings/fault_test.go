package findings

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/internal/gpucore"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

const (
	illegal = gpucore.Exception(14)
	trap    = gpucore.Exception(4)
)

func params(ptrs ...uint64) (b []byte) {
	for _, p := range ptrs {
		b = binary.LittleEndian.AppendUint64(b, p)
	}
	return b
}

// What a dump says is put into the words of the runtime, and what it does not say is not guessed.
func TestAFaultIsExplained(t *testing.T) {
	ctx := t.Context()
	s := teststack.Open(t, teststack.Config{Pool: &cuda.PoolConfig{}, Async: cuda.AsyncConfig{ReapInterval: -1}})
	block := func(tag core.Tag) core.Block {
		b, err := s.Runtime.Allocate(ctx, core.Request{Bytes: 4096, Tag: tag})
		must.Do(t, err)
		return b
	}
	out, victim := block("out"), block("victim")
	freed, err := s.Runtime.Deallocate(ctx, victim.ID)
	must.Do(t, err)
	freed.State = core.Freed
	defer func() {
		_, err := s.Runtime.Deallocate(ctx, out.ID)
		must.Do(t, err)
	}()
	launch := func(id uint64, name string, tag core.Tag) core.UseRecord {
		return core.UseRecord{LaunchID: id, Launch: name, Tags: [4]core.Tag{tag}}
	}
	honest, planted := launch(1, "honest", "other"), launch(2, "merge", "out")
	grid := gpucore.Grid{Kernel: "reader", Params: params(out.ID.Ptr, victim.ID.Ptr+64, 7)}
	read := func(at ...uint64) gpucore.Access {
		a := gpucore.Access{Kind: gpucore.AccessRead, Bytes: 4, Known: true, Address: at[0], Lowest: slices.Min(at), Highest: slices.Max(at)}
		for i, ptr := range at {
			a.Lanes = append(a.Lanes, gpucore.Lane{Thread: [3]uint32{uint32(i)}, Address: ptr})
		}
		return a
	}
	beside := grid
	beside.Params = params(out.ID.Ptr, out.ID.Ptr+4096+1<<20)
	two := grid
	two.Params = params(out.ID.Ptr, victim.ID.Ptr, victim.ID.Ptr+64)
	unknown := gpucore.Access{Kind: gpucore.AccessWrite, Why: "its registers are gone"}
	for name, c := range map[string]struct {
		inFlight []core.UseRecord
		fault    gpucore.Fault
		kind     core.FindingKind
		suspects string
		victim   core.Tag
		says     string
		stays    bool // the memory of blocks that were released
	}{
		"in a freed block": {[]core.UseRecord{honest, planted}, gpucore.Fault{Kernel: "reader", Exception: illegal, Access: read(victim.ID.Ptr + 64)},
			names.FindingIllegalAccess, "merge", "victim", `launch 2 "merge" read 4 bytes at`, false},
		"behind a block": {[]core.UseRecord{honest, planted}, gpucore.Fault{Kernel: "reader", Exception: illegal, Access: read(out.ID.Ptr + 4096 + 1<<20)},
			names.FindingIllegalAccess, "merge", "out", "1048576 bytes behind the end of block", false},
		"nowhere": {[]core.UseRecord{honest, planted}, gpucore.Fault{Kernel: "reader", Exception: illegal, Access: read(8)},
			names.FindingIllegalAccess, "merge", "", "never had memory", false},
		"of one thread of many": {[]core.UseRecord{honest, planted}, gpucore.Fault{Kernel: "reader", Exception: illegal, Access: read(out.ID.Ptr, out.ID.Ptr+4, victim.ID.Ptr+8)},
			names.FindingIllegalAccess, "merge", "victim", "thread [2 0 0]", false},
		"before a block": {[]core.UseRecord{honest, planted}, gpucore.Fault{Kernel: "reader", Exception: illegal, Access: read(out.ID.Ptr - 64)},
			names.FindingIllegalAccess, "merge", "out", "64 bytes before block", false},
		"of threads that reach where others may have memory": {[]core.UseRecord{honest, planted}, gpucore.Fault{Kernel: "reader", Exception: illegal, Access: read(8, out.ID.Ptr, 16)},
			names.FindingIllegalAccess, "merge", "", "it is not known what was not there", false},
		"at an address that is not known": {[]core.UseRecord{honest, planted}, gpucore.Fault{Kernel: "reader", Exception: illegal, Access: unknown},
			names.FindingIllegalAccess, "merge", "victim", "not known (its registers are gone)", false},
		"at an address that is not known, of a kernel that was given one beside a block": {[]core.UseRecord{honest, planted},
			gpucore.Fault{Kernel: "reader", Grid: 1, Exception: illegal, Access: unknown}, names.FindingIllegalAccess, "merge", "", "a candidate is its parameter", false},
		"at an address that is not known, of a kernel that was given two freed blocks": {[]core.UseRecord{honest, planted},
			gpucore.Fault{Kernel: "reader", Grid: 2, Exception: illegal, Access: unknown}, names.FindingIllegalAccess, "merge", "", "64 bytes into block \"victim\"", false},
		"of one of two launches alike": {[]core.UseRecord{honest, planted, launch(3, "again", "out")}, gpucore.Fault{Kernel: "reader", Exception: illegal, Access: read(8)},
			names.FindingIllegalAccess, "merge again honest", "", "one of 2 launches", false},
		"of a grid that is over, by the kernel's name": {[]core.UseRecord{honest, launch(4, "reader", "")}, gpucore.Fault{Kernel: "reader", Grid: -1, Exception: illegal, Access: unknown},
			names.FindingIllegalAccess, "reader", "", `launch 4 "reader"`, false},
		"of a grid that is over": {[]core.UseRecord{honest, planted}, gpucore.Fault{Kernel: "reader", Grid: -1, Exception: illegal, Access: unknown},
			names.FindingIllegalAccess, "honest merge", "", "do not tell the launch", false},
		"of threads of which one may have hit memory that stays": {[]core.UseRecord{honest, planted}, gpucore.Fault{Kernel: "reader", Exception: illegal, Access: read(victim.ID.Ptr, 8)},
			names.FindingIllegalAccess, "merge", "", "it is not known what was not there", true},
		"in a freed block whose memory stays for a while": {[]core.UseRecord{honest, planted}, gpucore.Fault{Kernel: "reader", Exception: illegal, Access: read(victim.ID.Ptr, victim.ID.Ptr+4)},
			names.FindingIllegalAccess, "merge", "victim", "0 bytes into block", true},
		"at an address that is not known, of a kernel that was given memory that stays": {[]core.UseRecord{honest, planted}, gpucore.Fault{Kernel: "reader", Exception: illegal, Access: unknown},
			names.FindingIllegalAccess, "merge", "", "a candidate is its parameter", true},
		"that is no access": {[]core.UseRecord{honest, planted}, gpucore.Fault{Kernel: "reader", Exception: trap},
			names.FindingStickyError, "merge", "", `kernel "reader" of launch 2`, false},
	} {
		t.Run(name, func(t *testing.T) {
			lost := core.Finding{Kind: names.FindingStickyError, Text: "the device is lost", Suspects: c.inFlight}
			f := Stack{Base: s.Backend, Released: slices.Values([]core.Block{freed}), Unmaps: !c.stays}.
				explain(lost, &gpucore.Dump{Grids: []gpucore.Grid{grid, beside, two}, Faults: []gpucore.Fault{c.fault}})
			var suspects []string
			for _, u := range f.Suspects {
				suspects = append(suspects, u.Launch)
			}
			if f.Kind != c.kind || strings.Join(suspects, " ") != c.suspects || f.Victim.Tag != c.victim {
				t.Errorf("it is %s by %q of %q", f.Kind, suspects, f.Victim.Tag)
			}
			if !strings.Contains(f.Text, c.says) || !strings.Contains(f.Text, lost.Text) {
				t.Errorf("it says %s", f.Text)
			}
			if len(f.Suspects) == 1 && f.Kind == names.FindingIllegalAccess && f.Suspects[0].Access != accessOf(c.fault.Access.Kind) {
				t.Errorf("the suspect's access is %v", f.Suspects[0].Access)
			}
			t.Log(f.Text)
		})
	}
	if f := (Stack{}).explain(core.Finding{Kind: names.FindingStickyError},
		&gpucore.Dump{}); f.Kind != names.FindingStickyError {
		t.Errorf("an empty dump makes a %s", f.Kind)
	}
}

// Of launches whose blocks have the same tags the one is it that used the block which the kernel was given.
func TestTheLaunchOfAFaultIsTheOneThatUsedTheBlocks(t *testing.T) {
	inFlight := []core.UseRecord{{LaunchID: 1, Tags: [4]core.Tag{"x"}}, {LaunchID: 2, Tags: [4]core.Tag{"x"}}, {LaunchID: 3, Tags: [4]core.Tag{"y"}}}
	of := func(tag core.Tag, launch uint64) core.Finding {
		return core.Finding{Victim: core.Block{ID: core.BlockID{Generation: 1}, Tag: tag}, Uses: []core.UseRecord{{LaunchID: launch}}}
	}
	list := fitting(inFlight, "k", []place{{block: of("x", 2)}, {block: of("y", 3), beside: true}, {block: of("y", 3), beside: true}})
	if len(list) != 1 || list[0].LaunchID != 2 {
		t.Errorf("it is %v", list)
	}
	faults := []gpucore.Fault{{Grid: -1, SM: 1}, {Grid: -1, SM: 2}, {Grid: 0, SM: 3}, {Grid: 0, SM: 4, Access: gpucore.Access{Known: true}}, {Grid: 0, SM: 5}}
	if got := clearest(faults).SM; got != 4 {
		t.Errorf("the clearest is that of multiprocessor %d", got)
	}
}

// A lost device is told of when its dump is read, at once if none has begun, and also if it cannot be read.
func TestALostDeviceIsToldOfWhenItsDumpIsRead(t *testing.T) {
	for name, c := range map[string]struct {
		begun bool
		err   error
		kind  core.FindingKind
	}{
		"read":   {true, nil, names.FindingIllegalAccess},
		"broken": {true, errors.New("damaged"), names.FindingStickyError},
		"none":   {false, nil, names.FindingStickyError},
	} {
		t.Run(name, func(t *testing.T) {
			told, dumped := make(chan core.Finding, 1), make(chan struct{})
			r := New(Config{Collection: telemetry.NewFindings(telemetry.FindingsConfig{}), LookAtHealth: func() {}, OnFinding: func(f core.Finding) { told <- f },
				Stack: func() (Stack, bool) { return Stack{}, false },
				Fault: func() func(context.Context) (*gpucore.Dump, error) {
					if !c.begun {
						return nil
					}
					return func(context.Context) (*gpucore.Dump, error) {
						<-dumped
						return &gpucore.Dump{Faults: []gpucore.Fault{{Grid: -1, Exception: illegal}}}, c.err
					}
				}})
			r.Report(core.Finding{Kind: names.FindingLeak}) // waits for nothing
			if f := <-told; f.Kind != names.FindingLeak {
				t.Errorf("a leak is told as %v", f)
			}
			r.Report(core.Finding{Kind: names.FindingStickyError, Text: "lost"})
			if c.begun {
				select {
				case f := <-told:
					t.Errorf("before the dump was read it is told: %v", f)
				case <-time.After(time.Millisecond):
				}
			}
			close(dumped)
			must.Do(t, r.Wait(t.Context()))
			if f := <-told; f.Kind != c.kind {
				t.Errorf("told is %v", f)
			}
		})
	}
}

// A dump that takes long holds up the news of the loss for a while only, and is told when it is
// read.
func TestADumpThatTakesLongIsToldAfterTheLoss(t *testing.T) {
	for name, c := range map[string]struct {
		takes time.Duration
		kinds []core.FindingKind
	}{
		"soon":  {toldWithin / 2, []core.FindingKind{names.FindingIllegalAccess}},
		"late":  {2 * toldWithin, []core.FindingKind{names.FindingStickyError, names.FindingIllegalAccess}},
		"never": {2 * dumpTakes, []core.FindingKind{names.FindingStickyError}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var kinds []core.FindingKind
				var first time.Duration
				start := time.Now()
				r := New(Config{Collection: telemetry.NewFindings(telemetry.FindingsConfig{}), LookAtHealth: func() {},
					OnFinding: func(f core.Finding) {
						if kinds = append(kinds, f.Kind); len(kinds) == 1 {
							first = time.Since(start)
						}
					},
					Stack: func() (Stack, bool) { return Stack{}, false },
					Fault: func() func(context.Context) (*gpucore.Dump, error) {
						read := time.After(c.takes)
						return func(ctx context.Context) (*gpucore.Dump, error) {
							select {
							case <-read:
								return &gpucore.Dump{Faults: []gpucore.Fault{{Grid: -1, Exception: illegal}}}, nil
							case <-ctx.Done():
								return nil, fmt.Errorf("it is not at its end: %w", ctx.Err())
							}
						}
					}})
				r.Report(core.Finding{Kind: names.FindingStickyError, Text: "lost"})
				must.Do(t, r.Wait(t.Context()))
				if !slices.Equal(kinds, c.kinds) || first > toldWithin {
					t.Errorf("told %v, the first after %v", kinds, first)
				}
			})
		})
	}
}
