package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/internal/limits"
)

// asGPU is a device that says that it is a GPU.
type asGPU struct{ driver.Driver }

// Unwrap returns the device.
func (d asGPU) Unwrap() driver.Driver { return d.Driver }

// Properties has a GPU's.
func (d asGPU) Properties() (driver.Properties, error) {
	p, err := d.Driver.Properties()
	p.DriverVersion, p.PCIBusID = 13040, "0000:19:00.0"
	return p, err
}

// limit writes what the kernel says of the control group of a process.
func (p *player) limit(bytes string) {
	for name, text := range map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/dmem.max": "nvidia/0000:19:00.0/vidmem " + bytes + "\n"} {
		name = filepath.Join(p.folder, name)
		_ = os.MkdirAll(filepath.Dir(name), 0o700) // or the panel shows nothing
		_ = os.WriteFile(name, []byte(text), 0o600)
	}
}

func small(_ *player, cfg *fencepost.Config) { cfg.Budget = limit }

var memoryScenes = []scene{
	{name: "hold", act: func(s *steps) { s.hold("hold", 64*mib) }},
	// Nothing is launched. What the device has lasts for five minutes: an alert
	// needs growth that goes on, and a busy machine has the scrapes late.
	{name: "leak", idle: true, act: func(s *steps) {
		on := s.lease("leaky")
		s.loop(300*time.Millisecond, func(s *steps) { s.allocate(on, "leaky", mib/4) })
	}},
	{name: "tags", act: func(s *steps) {
		on := s.lease("tags")
		for i := range 12 {
			s.allocate(on, core.Tag(fmt.Sprintf("tag-%d", i)), mib)
		}
	}},
	// What is held is freed after milliseconds.
	{name: "flash", act: func(s *steps) {
		on := s.lease("flash")
		s.loop(beat, func(s *steps) {
			b := s.allocate(on, "flash", 16*mib)
			time.Sleep(beat / 10)
			s.free(b)
		})
	}},
	// The pool is at its limit, and the budget is not.
	{name: "fullpool", act: func(s *steps) {
		on, _ := s.hold("greedy", limit/4*3)
		s.loop(beat, func(s *steps) { s.once(on, "greedy", limit/2) })
	}, configure: func(_ *player, cfg *fencepost.Config) {
		cfg.Resource, cfg.Guard, cfg.Pool.Limit = fencepost.Pool, "off", limit
	}},
	// After a burst the pool keeps what was needed once.
	{name: "slack", act: func(s *steps) {
		_, b := s.hold("burst", 64*mib)
		s.free(b)
	}},
	// Half of each of 32 pages is free, and the pool grows and trims again and again.
	{name: "ownpool", act: func(s *steps) {
		on := s.lease("fragments")
		var blocks [64]core.Block
		for i := range blocks {
			blocks[i] = s.allocate(on, "fragments", mib)
		}
		for i := 0; i < len(blocks); i += 2 {
			s.free(blocks[i])
		}
		s.loop(beat, func(s *steps) {
			s.once(on, "burst", 16*mib)
			s.try(func() error { return s.rt.TrimPool(s.ctx, 0) })
		})
	}, configure: func(_ *player, cfg *fencepost.Config) {
		cfg.Resource, cfg.Guard, cfg.Pool.Limit = fencepost.Pool, "off", 128*mib
	}},
	{name: "reserve", act: func(s *steps) {
		s.try(func() error { _, err := s.rt.Reserve(s.ctx, 32*mib, "reserved"); return err })
	}},
	{name: "limit", configure: small, act: func(s *steps) { s.rt.Budget().SetLimit(limit + 64*mib) }},
	{name: "refuse", act: func(s *steps) {
		on, _ := s.hold("greedy", limit/2)
		s.loop(beat, func(s *steps) { s.once(on, "greedy", limit) })
	}, configure: func(p *player, cfg *fencepost.Config) {
		small(p, cfg)
		traced(p, cfg)
	}},
	// What is freed waits for the device, and the next request for that.
	{name: "pending", configure: small, act: func(s *steps) {
		first, second := s.lease("first"), s.lease("second")
		s.loop(beat, func(s *steps) {
			b := s.allocate(first, "first", limit/8*5)
			release := s.stall(first)
			s.free(b)
			time.AfterFunc(20*time.Millisecond, release)
			s.once(second, "second", limit/8*5)
		})
	}},
	{name: "line", configure: small, act: func(s *steps) {
		s.hold("greedy", limit/2)
		s.loops.Go(func() {
			_ = s.rt.Do(s.ctx, "waiting", func(*fencepost.Job) error { return nil }, fencepost.Reserve(limit*3/4, time.Hour))
		})
	}},
	// The driver refuses what the budget admits.
	{name: "oom", configure: traced, act: func(s *steps) { s.faults.FailEvery(drivertest.MemAllocAsync, driver.OutOfMemory) }},
	{name: "foreign", act: func(s *steps) {
		s.try(func() error { _, err := s.device.MemAlloc(64 * mib); return err })
	}},
	// The control group's limit on the memory of a device that says that it is a GPU is raised.
	{name: "contained", configure: func(p *player, cfg *fencepost.Config) {
		limits.Root = p.folder
		p.limit("67108864")
		cfg.Driver = asGPU{cfg.Driver}
	}, act: func(s *steps) { s.limit("134217728") }},
	// A block is freed behind the runtime's back.
	{name: "drift", act: func(s *steps) {
		on, b := s.hold("drift", 32*mib)
		s.try(func() error { return s.device.MemFreeAsync(b.ID.Ptr, on.Handle()) })
	}},
	// The driver does not say how much memory there is.
	{name: "deaf", act: func(s *steps) {
		s.faults.FailEvery(drivertest.MemInfo, driver.InvalidHandle)
		s.faults.FailEvery(drivertest.PoolStats, driver.InvalidHandle)
	}},
}
