package main

import (
	"fmt"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
)

func quarantining(_ *player, cfg *fencepost.Config) {
	cfg.Guard = "hunt"
	cfg.GuardConfig.QuarantineBytes, cfg.GuardConfig.QuarantineAge = 64*mib, -1
}

var guardScenes = []scene{
	{name: "hunt", act: func(s *steps) {
		s.try(func() error { return s.rt.SwitchGuard(s.ctx, fencepost.GuardChange{Mode: new(fencepost.GuardHunt)}) })
	}},
	// A block is kept, and some are freed, most of one tag.
	{name: "quarantine", idle: true, configure: quarantining, act: func(s *steps) {
		on, _ := s.hold("kept", mib)
		for range 16 {
			s.free(s.allocate(on, "freed", mib))
		}
		for i := range 8 {
			s.free(s.allocate(on, core.Tag(fmt.Sprintf("other-%d", i)), mib))
		}
	}},
	// The quarantine is larger than the budget.
	{name: "pressure", idle: true, act: func(s *steps) {
		on := s.lease("pressed")
		s.loop(beat, func(s *steps) { s.once(on, "pressed", 3*mib) })
	}, configure: func(p *player, cfg *fencepost.Config) {
		quarantining(p, cfg)
		cfg.Budget = limit
	}},
}
