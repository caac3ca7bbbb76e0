package audit_test

import (
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost/internal/audit"
)

func TestACounterCountsBesideTheListenerBefore(t *testing.T) {
	told := 0
	defer audit.Listen(audit.Listen(func(error) { told++ }))
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
	defer audit.Listen(audit.Listen(nil))
	audit.Check(func() error { t.Error("checked"); return nil })
}
