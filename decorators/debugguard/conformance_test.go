package debugguard_test

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// TestConformance runs the suite in every mode, over upstreams that free in
// stream order, that free at once, and that track no uses.
func TestConformance(t *testing.T) {
	for i, mode := range []debugguard.Mode{debugguard.Off, debugguard.Ledger, debugguard.Sample, debugguard.Hunt} {
		for j, kind := range []string{"ordered", "immediate", "untracked"} {
			if testing.Short() && (i+j)%2 == 0 { // each mode and each kind still has a turn
				continue
			}
			t.Run(mode.String()+" "+kind, func(t *testing.T) {
				coretest.Run(t, func(t *testing.T) coretest.Subject { return guardedSubject(t, mode, kind) })
			})
		}
	}
}

func guardedSubject(t *testing.T, mode debugguard.Mode, kind string) coretest.Subject {
	fake, memory, found := coretest.NewFake(0), newMemory(), &sink{}
	fake.Subscribe(memory)
	t.Cleanup(func() {
		for _, f := range found.taken() {
			switch f.Kind {
			case names.FindingUnderflow, names.FindingOutOfBoundsWrite, names.FindingUseAfterFreeWrite:
				t.Errorf("nothing wrote, yet %v", f)
			}
		}
	})
	if kind != "ordered" {
		fake.ReleaseAtFree()
	}
	upstream := core.Resource(fake)
	if kind == "untracked" {
		upstream = untracked{fake}
	}
	guard := must.Get(debugguard.New(upstream, debugguard.Config{Mode: mode, Device: memory, Findings: found.Report, SampleBytes: 4096, QuarantineBytes: 64 << 10, Advanced: debugguard.Advanced{Tombstones: 256, PoisonCap: 4096, Patience: -1}}))(t)
	return coretest.Subject{
		Resource: guard, Streams: fake.Streams, MaxBlock: 64 << 10,
		Features: upstream.Features() | core.DeviceChecks,
	}
}

// TestConformanceOfTwoGuards puts one guard around another.
func TestConformanceOfTwoGuards(t *testing.T) {
	coretest.Run(t, func(t *testing.T) coretest.Subject {
		s := guardedSubject(t, debugguard.Hunt, "ordered")
		outer := must.Get(debugguard.New(s.Resource, debugguard.Config{Mode: debugguard.Ledger, Device: newMemory(), Advanced: debugguard.Advanced{Patience: -1}}))(t)
		s.Resource = outer
		return s
	})
}
