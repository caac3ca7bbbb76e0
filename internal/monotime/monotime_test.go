package monotime

import (
	"testing"
	"time"
)

func TestInstantsAreMonotonic(t *testing.T) {
	before := Now()
	at, after := Now(), Now()
	if before > at || at > after || before < 0 {
		t.Errorf("%v, %v, %v", before, at, after)
	}
	if got := (at + Instant(time.Minute)).Since(at); got != time.Minute {
		t.Errorf("a minute is %v", got)
	}
	if got := at.Since(after + 1); got != 0 {
		t.Errorf("%v from a later instant", got)
	}
}
