package cuda

import "testing"

func TestABatchThatOvertookCountsWhenTheOlderIsDone(t *testing.T) {
	var c freeCounters
	for _, step := range []struct {
		done freeRange
		want uint64
	}{{freeRange{10, 20}, 0}, {freeRange{30, 40}, 0}, {freeRange{0, 10}, 20}, {freeRange{20, 30}, 40}, {freeRange{40, 41}, 41}} {
		c.noteReleased(step.done)
		if got := c.released.Load(); got != step.want {
			t.Errorf("after %v: released up to %d, want %d", step.done, got, step.want)
		}
	}
	if len(c.overtook) != 0 {
		t.Errorf("left over: %v", c.overtook)
	}
}
