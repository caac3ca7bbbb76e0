package profile_test

import (
	"context"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/telemetry/profile"
)

// BenchmarkTake takes a profile of 100 000 live blocks of 100 tags.
func BenchmarkTake(b *testing.B) {
	rt, err := fencepost.Open(context.Background(), fencepost.Config{Device: fencepost.Sim})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _, _ = rt.Close(context.Background()) })
	var blocks []core.Block
	for i := range 100_000 {
		block, err := rt.Allocate(context.Background(), core.Request{Bytes: 4096, Tag: core.Tag('a' + rune(i%100))})
		if err != nil {
			b.Fatal(err)
		}
		blocks = append(blocks, block)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := profile.Take(profile.Source{Resource: rt.Core().Resource()}); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	for _, block := range blocks {
		if _, err := rt.Deallocate(context.Background(), block.ID); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSampled counts an allocation whose stack is kept.
func BenchmarkSampled(b *testing.B) {
	rt, err := fencepost.Open(context.Background(), fencepost.Config{Device: fencepost.Sim})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _, _ = rt.Close(context.Background()) })
	a, stack := profile.NewAllocations(core.Base(rt.Core().Resource())), core.CaptureStack(0)
	b.ReportAllocs()
	for b.Loop() {
		a.Sampled(4096, "rows", stack)
	}
}
