package main

import (
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/cuda"
)

func fewStreams(_ *player, cfg *fencepost.Config) { cfg.Streams = few }

var streamScenes = []scene{
	{name: "heldback", act: freeBehindStalledWork},
	{name: "stuck", idle: true, act: freeBehindStalledWork},
	// Frees wait for work that takes a while. Most are late, so that the median is.
	{name: "late", act: func(s *steps) {
		on := s.lease("late")
		for range 8 {
			s.loop(quick, func(s *steps) {
				defer s.stall(on)()
				for range 8 {
					s.free(s.allocate(on, "late", 4<<10))
				}
				time.Sleep(400 * time.Millisecond)
			})
		}
	}},
	// All streams are leased, so that one caller waits and others are refused.
	{name: "exhaust", configure: fewStreams, act: func(s *steps) {
		for range few - 1 { // the base work has one
			s.lease("greedy")
		}
		s.loops.Go(func() { (&steps{player: s.player}).lease("waiting") })
		s.loop(beat, func(s *steps) {
			s.try(func() error { _, err := s.rt.Streams().TryAcquire(s.ctx, "refused"); return err })
		})
	}},
	// There are more callers than streams, each of whom keeps one for a while.
	{name: "queue", configure: fewStreams, act: func(s *steps) {
		for range 2 * few {
			s.loop(quick, func(s *steps) {
				s.try(func() error {
					on, err := s.rt.Streams().Acquire(s.ctx, "turn")
					if err != nil {
						return err
					}
					time.Sleep(beat)
					return on.Release()
				})
			})
		}
	}},
	{name: "adopt", act: func(s *steps) {
		s.keep(func() (*cuda.Lease, error) {
			handle, err := s.device.StreamCreate()
			if err != nil {
				return nil, err
			}
			return s.rt.Streams().Adopt(handle, "callers")
		})
	}},
}

func freeBehindStalledWork(s *steps) {
	on, b := s.hold("heldback", 32*mib)
	s.stall(on)
	s.free(b)
}
