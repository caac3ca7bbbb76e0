package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
)

// hunting guards every block, compares after every launch, and writes
// incidents.
func hunting(p *player, cfg *fencepost.Config) {
	cfg.Guard, cfg.Incidents = "hunt:bisect", p.folder
	cfg.GuardConfig.QuarantineBytes = 4 * mib
}

var bugScenes = []scene{
	// A block is freed twice.
	{name: "misuse", act: func(s *steps) {
		_, b := s.hold("victim", mib)
		s.free(b)
		s.try(func() error {
			if _, err := s.rt.Deallocate(s.ctx, b.ID); !errors.Is(err, core.ErrUseAfterFree) {
				return fmt.Errorf("the second free was not refused: %w", err)
			}
			return nil
		})
	}},
	{name: "corrupt", configure: hunting, act: corrupt},
	// Memory is corrupted when the folder of incidents is gone, and cannot be
	// made anew.
	{name: "badfolder", configure: hunting, act: func(s *steps) {
		s.try(func() error { return errors.Join(os.RemoveAll(s.folder), os.WriteFile(s.folder, nil, 0o600)) })
		corrupt(s)
	}},
	// A recorder is forgotten between its preflight and its end.
	{name: "recorder", act: func(s *steps) {
		on, b := s.hold("forgotten", mib)
		s.try(func() error {
			r := core.NewStrictRecorder(on.ID())
			return errors.Join(r.Write(b), r.Preflight(s.ctx, s.rt))
		})
		s.loop(beat, func(*steps) { runtime.GC() })
	}},
	// Both the event of a launch and the synchronise that takes its place fail.
	{name: "unfenced", idle: true, act: func(s *steps) {
		on, b := s.hold("unfenced", mib)
		ticket := s.prepare(on, b, core.Write)
		s.faults.FailEvery(drivertest.EventRecord, driver.InvalidHandle)
		s.faults.FailEvery(drivertest.StreamSynchronize, driver.InvalidHandle)
		defer s.faults.Clear()
		s.try(func() error {
			if s.rt.Core().FinishUse(s.ctx, ticket) == nil {
				return errors.New("the launch was fenced after all")
			}
			return nil
		})
	}},
	{name: "lose", act: func(s *steps) { s.device.LoseContext(driver.IllegalAddress) }},
}

// corrupt lets a launch write behind its block.
func corrupt(s *steps) {
	on, b := s.hold("victim", mib)
	s.launch(on, b, core.Write, func() error { return s.rt.Driver().MemsetAsync(b.ID.Ptr+b.Requested, 0x42, 16, on.Handle()) })
	s.free(b)
}
