package main

import (
	"fmt"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/admit"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
)

var jobScenes = []scene{
	// Of three jobs with a reservation two have room, and of those with it and without one has to wait for a stream.
	{name: "jobs", idle: true, configure: func(p *player, cfg *fencepost.Config) {
		traced(p, cfg)
		timeAll(p, cfg)
		small(p, cfg)
		cfg.Streams = 4
	}, act: func(s *steps) {
		shared := get(s, func() (*cuda.Slice[byte], error) {
			return cuda.Alloc[byte](s.ctx, s.rt.Memory(), 64, cuda.AllocOptions{Tag: "shared"})
		})
		for range 3 {
			s.loop(quick, func(s *steps) {
				s.job("sort", func(j *fencepost.Job) error {
					_, err := fencepost.Alloc[byte](j, 4*mib)
					time.Sleep(beat)
					return err
				}, fencepost.Reserve(7*mib, time.Minute))
			})
		}
		// One writes, and keeps its stream from going on for a while, and the others read.
		s.loop(quick, func(s *steps) {
			s.job("merge", func(j *fencepost.Job) error {
				on, b := j.Stream(), core.Block{ID: shared.BlockID()}
				end := s.stall(on)
				s.fill(on, b)
				time.Sleep(longWork)
				end()
				return s.err
			})
		})
		for range 4 {
			s.loop(quick, func(s *steps) {
				s.job("query", func(j *fencepost.Job) error {
					_, err := fencepost.Download(j, shared)
					return err
				})
			})
		}
	}},
	// What is learned of two is forgotten after each, and wrong.
	{name: "predicted", configure: func(p *player, cfg *fencepost.Config) { p.learned = new(admit.Model); cfg.Learned = p.learned }, act: func(s *steps) {
		for name, needs := range map[string]int{"batch": 2 * mib, "report": mib / 4} {
			s.loop(quick, func(s *steps) {
				s.learned.Forget(name)
				for range 40 {
					s.learned.Observe(name, admit.Shape{}, mib)
				}
				s.job(name, func(j *fencepost.Job) error {
					_, err := fencepost.Alloc[byte](j, needs)
					time.Sleep(beat)
					return err
				}, fencepost.Admit())
			})
		}
	}},
	{name: "jobnames", act: func(s *steps) { // more of them than a panel has lines
		for i := range 12 {
			s.loop(quick, func(s *steps) {
				s.job(fmt.Sprintf("job-%d", i), func(j *fencepost.Job) error {
					_, err := fencepost.Alloc[byte](j, mib)
					time.Sleep(beat)
					return err
				})
			})
		}
	}},
}

func (s *steps) job(name string, work func(*fencepost.Job) error, options ...fencepost.JobOption) {
	s.try(func() error { return s.rt.Do(s.ctx, name, work, options...) })
}
