package activemutant

import (
	"slices"
	"testing"
)

func TestOneExecutionOfOneSiteGoesWrong(t *testing.T) {
	Register(make([]string, 5))
	defer Disarm()
	Arm(3, 2)
	var wrong []bool
	for range 4 {
		wrong = append(wrong, At(3), At(4))
	}
	if want := []bool{false, false, true, false, false, false, false, false}; !slices.Equal(wrong, want) {
		t.Errorf("got %v, want %v", wrong, want)
	}
	if n := Executions(3); n != 4 {
		t.Errorf("%d executions", n)
	}
	if Disarm(); Executions(3) != 0 || At(3) {
		t.Error("still armed, or not counted anew")
	}
}
