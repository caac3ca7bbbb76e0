package gputest

import (
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

// keeper loses pages: it says that they were released, and keeps them until the test has ended.
type keeper struct {
	driver.Driver
	losing bool // the next one
	lost   []driver.MemHandle
}

func (k *keeper) Unwrap() driver.Driver { return k.Driver }

func (k *keeper) MemRelease(h driver.MemHandle) error {
	if !k.losing {
		return k.Driver.MemRelease(h)
	}
	k.losing = false
	k.lost = append(k.lost, h)
	return nil
}

// The second witness of the pool's drift is the device's memory: what is neither free nor the
// pool's stays as it is on a GPU that nobody else uses, however often the pool takes pages and gives them
// back, and grows with each that is lost.
func TestThePoolHasThePagesThatTheDeviceLacks(t *testing.T) {
	h := gpu(t)
	props, err := h.Properties()
	must(t, err)
	if props.MapGranularity == 0 {
		t.Skip("the device maps no memory: there is no such pool on it")
	}
	for name, loses := range map[string]bool{"none is lost": false, "one a round is lost": true} {
		t.Run(name, func(t *testing.T) {
			k := &keeper{Driver: h.Driver}
			t.Cleanup(func() { // after the runtime is closed
				for _, page := range k.lost {
					must(t, h.MemRelease(page))
				}
			})
			b := newBench(t, fencepost.Config{Driver: k, Guard: "off", Resource: fencepost.Pool, Pool: cuda.PoolConfig{ReapInterval: -1}})
			streams := b.leases(2)
			b.useAndTrim(streams) // from now on the driver has what it needs for itself
			before, rounds := b.foreign(), scaled(64, 8)
			for range rounds {
				k.losing = loses
				b.useAndTrim(streams)
			}
			grown, want, slack := b.foreign()-before, int64(0), int64(rounds)*int64(props.MapGranularity)/4
			if loses {
				want = int64(rounds) * int64(props.MapGranularity)
			}
			if dryRun {
				slack = 0
			}
			t.Logf("in %d rounds memory of others grew by %d bytes", rounds, grown)
			if grown < want-slack || grown > want+slack {
				t.Errorf("memory of others grew by %d bytes in %d rounds, want %d within %d", grown, rounds, want, slack)
			}
			if drift, err := b.Drift(); drift.Bytes != 0 || !drift.Known || err != nil {
				t.Errorf("a drift of %d bytes (%v, %v)", drift.Bytes, drift.Known, err)
			}
		})
	}
}

// useAndTrim lets one stream use what the other has freed, and gives all of it back.
func (b *bench) useAndTrim(streams []*cuda.Lease) {
	b.Helper()
	for _, s := range streams {
		var all []*words
		for _, n := range []int{1 << 10, 3 << 20, 5 << 20} {
			w := b.alloc(s, n, "pages")
			must(b, b.doWrite(s, w, 1))
			all = append(all, w)
		}
		b.give(all)
	}
	must(b, b.Drain(ctx))
	must(b, b.TrimPool(ctx, 0))
	if pool, err := b.PoolStats(); pool.Reserved != 0 || err != nil {
		b.Fatalf("the pool holds %d bytes after a trim: %v", pool.Reserved, err)
	}
}

// foreign is what is neither free nor the backend's of the device's memory.
func (b *bench) foreign() int64 {
	b.Helper()
	free, total, owned, err := core.Base(b.Core().Resource()).(metrics.Backend).DeviceMemory()
	must(b, err)
	return int64(total) - int64(free) - int64(owned)
}
