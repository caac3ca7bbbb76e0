package cuda

import "testing"

func TestABatchThatOvertookCountsWhenTheOlderIsDone(t *testing.T) {
	var o odometer
	for _, step := range []struct {
		done stretch
		want uint64
	}{{stretch{10, 20}, 0}, {stretch{30, 40}, 0}, {stretch{0, 10}, 20}, {stretch{20, 30}, 40}, {stretch{40, 41}, 41}} {
		o.settle(step.done)
		if got := o.settled.Load(); got != step.want {
			t.Errorf("after %v: settled up to %d, want %d", step.done, got, step.want)
		}
	}
	if len(o.overtook) != 0 {
		t.Errorf("left over: %v", o.overtook)
	}
}
