package cuda

import "testing"

func TestABatchThatOvertookCountsWhenTheOlderIsDone(t *testing.T) {
	var q freeQueue
	for _, step := range []struct {
		done freeRange
		want uint64
	}{{freeRange{10, 20}, 0}, {freeRange{30, 40}, 0}, {freeRange{40, 50}, 0}, {freeRange{0, 10}, 20}, {freeRange{20, 30}, 50}, {freeRange{50, 51}, 51}} {
		q.noteReleased(step.done)
		if got := q.releasedUpTo(); got != step.want {
			t.Errorf("after %v: released up to %d, want %d", step.done, got, step.want)
		}
	}
	if len(q.ahead) != 0 {
		t.Errorf("left over: %v", q.ahead)
	}
}
