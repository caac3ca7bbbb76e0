package main

import (
	"slices"
	"time"

	"github.com/fencepost-gpu/fencepost"
)

const (
	mib = 1 << 20
	// beat is the pause of what goes on, and quick of what happens often: as
	// often as the boards must show, and no more, since a busy machine has to
	// play all scenes at once.
	beat, quick = 50 * time.Millisecond, 15 * time.Millisecond
	beatBytes   = 64 << 10
	// limit is the budget of scenes that come near it, and few how many streams
	// those have that run out of them.
	limit, few = 16 * mib, 3
)

// scene is what is played on one runtime.
type scene struct {
	name string
	// configure changes the configuration; nil leaves it.
	configure func(*player, *fencepost.Config)
	// idle: nothing is done before the action.
	idle bool
	// act does what the scene is named for. What goes on is started with loop.
	act func(*steps)
}

// scenes are all that there are, in no order.
func scenes() []scene {
	return slices.Concat(workScenes, memoryScenes, streamScenes, jobScenes, bugScenes, guardScenes, lossScenes)
}
