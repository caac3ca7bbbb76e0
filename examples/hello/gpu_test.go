package main

import (
	"errors"
	"slices"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
	"github.com/fencepost-gpu/fencepost/fenceposttest"
)

// The PTX does on a GPU what its twin does on the simulated device, at lengths at
// which the last block is full and is not.
func TestHelloIsRightOnAGPU(t *testing.T) {
	if _, err := libcuda.Load(); errors.Is(err, libcuda.ErrNoDriver) {
		t.Skip(err)
	}
	checkAdd(t, fencepost.Config{Device: fencepost.CUDA, Budget: 1 << 30})
}

func TestHelloIsRightOnTheSimulatedDevice(t *testing.T) {
	checkAdd(t, fencepost.Config{})
}

func checkAdd(t *testing.T, cfg fencepost.Config) {
	t.Helper()
	rt := fenceposttest.Open(t, cfg) // its findings fail t
	add := must(must(rt.Load("hello", ptx, twin)).Kernel("add_each"))
	for _, n := range []int{1, 255, 256, 257, 100_000} {
		values, want := make([]uint32, n), make([]uint32, n)
		for i := range n {
			values[i], want[i] = uint32(i), uint32(i)+7
		}
		var got []uint32
		err := rt.Do(t.Context(), "hello", func(j *fencepost.Job) error {
			col, err := fencepost.Upload(j, values)
			if err != nil {
				return err
			}
			if err := j.Launch(add, cuda.Blocks1D(n, 256), fencepost.ReadWrites(col), fencepost.Value(uint32(7)), fencepost.Value(uint32(n))); err != nil {
				return err
			}
			got, err = fencepost.Download(j, col)
			return err
		})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%d values: wrong, or %v", n, err)
		}
	}
}
