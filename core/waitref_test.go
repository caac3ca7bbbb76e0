package core

import "testing"

func TestAWaitRefNamesALaunchOrABlockOrNothing(t *testing.T) {
	for _, c := range []struct {
		name          string
		ref           WaitRef
		launch, block bool
		number        uint64
	}{
		{"nothing", 0, false, false, 0},
		{"a launch", LaunchWait(7), true, false, 7},
		{"a block", BlockWait(7), false, true, 7},
		{"no launch", LaunchWait(0), false, false, 0},
	} {
		id, launch := c.ref.Launch()
		g, block := c.ref.Block()
		if launch != c.launch || block != c.block || launch && id != c.number || block && uint64(g) != c.number {
			t.Errorf("%s: launch %d %v, block %v %v", c.name, id, launch, g, block)
		}
	}
}
