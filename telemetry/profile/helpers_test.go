package profile_test

import (
	"bytes"
	"context"
	"testing"

	pprof "github.com/google/pprof/profile"
	"go.uber.org/goleak"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry/profile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a stack on the simulated device whose guard guards about one
// block in four of 4 KiB and keeps the stacks of as many others.
func open(t *testing.T) (*fencepost.Runtime, profile.Source) {
	t.Helper()
	rt, err := fencepost.Open(t.Context(), fencepost.Config{Device: fencepost.Sim, Resource: fencepost.Async, // whose freed blocks are pending
		GuardConfig: debugguard.Config{SampleBytes: 16 << 10, Advanced: debugguard.Advanced{StackBytes: 16 << 10}}})
	must.Do(t, err)
	t.Cleanup(func() {
		if _, err := rt.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return rt, profile.Source{Resource: rt.Core().Resource(), Allocations: profile.NewAllocations(core.Base(rt.Core().Resource()))}
}

// lease takes a stream until the end of the test.
func lease(t *testing.T, rt *fencepost.Runtime) *cuda.Lease {
	t.Helper()
	l := must.Get(rt.Streams().Acquire(t.Context(), "test"))(t)
	t.Cleanup(func() { _ = l.Release() })
	return l
}

func allocate(t *testing.T, rt *fencepost.Runtime, bytes uint64, stream core.StreamID, tag core.Tag) core.Block {
	t.Helper()
	return must.Get(rt.Allocate(t.Context(), core.Request{Bytes: bytes, Stream: stream, Tag: tag}))(t)
}

func free(t *testing.T, rt *fencepost.Runtime, blocks ...core.Block) {
	t.Helper()
	for _, b := range blocks {
		must.Get(rt.Deallocate(t.Context(), b.ID))(t)
	}
}

// written writes a profile and reads it back as a tool does.
func written(t *testing.T, sources ...profile.Source) *pprof.Profile {
	t.Helper()
	var file bytes.Buffer
	must.Do(t, profile.Write(&file, 0, sources...))
	p := must.Get(pprof.Parse(&file))(t)
	must.Do(t, p.CheckValid())
	return p
}

// inUse sums up the samples that have a label, "" for all.
func inUse(p *pprof.Profile, label, value string) (sum core.Amount) {
	for _, s := range p.Sample {
		if label == "" || s.HasLabel(label, value) {
			sum.Blocks += uint64(s.Value[2])
			sum.Bytes += uint64(s.Value[3])
		}
	}
	return sum
}

func allocated(p *pprof.Profile) (sum core.Amount) {
	for _, s := range p.Sample {
		sum.Blocks += uint64(s.Value[0])
		sum.Bytes += uint64(s.Value[1])
	}
	return sum
}

// leaves are the innermost functions of samples with a tag, with their bytes.
func leaves(p *pprof.Profile, tag string) map[string]int64 {
	bytes := map[string]int64{}
	for _, s := range p.Sample {
		if s.HasLabel("tag", tag) {
			bytes[s.Location[0].Line[0].Function.Name] += s.Value[3]
		}
	}
	return bytes
}
