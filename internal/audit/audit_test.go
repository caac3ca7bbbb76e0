package audit_test

import (
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost/internal/audit"
)

// listen sets a listener until the test ends.
func listen(t *testing.T, f func(error)) {
	before := audit.Listen(f)
	t.Cleanup(func() { audit.Listen(before) })
}

func TestACounterCountsBesideTheListenerBefore(t *testing.T) {
	told := 0
	listen(t, func(error) { told++ })
	wrong := func() { audit.Check(func() error { return errors.New("wrong") }) }
	c := audit.Count()
	audit.Check(func() error { return nil })
	wrong()
	audit.Check(func() error { return errors.New("the second") })
	c.Stop()
	wrong()
	c.Stop()
	if n, first := c.Wrong(); n != 2 || first != "wrong" || told != 3 {
		t.Errorf("counted %d, the first %q; the listener was told of %d", n, first, told)
	}
}

func TestNothingIsCheckedWithoutAListener(t *testing.T) {
	listen(t, nil)
	audit.Check(func() error { t.Error("checked"); return nil })
}
