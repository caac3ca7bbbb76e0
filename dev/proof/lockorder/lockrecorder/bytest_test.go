package lockrecorder_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fencepost-gpu/fencepost/dev/proof/lockorder/lockrecorder"
)

// What a test takes by hand says nothing of the product.
func TestATestsOwnLocksAreNoPair(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pairs")
	t.Setenv(lockrecorder.File, file)
	var (
		a lockrecorder.Mutex[[5]byte]
		b lockrecorder.Mutex[[6]byte]
	)
	a.Lock()
	func() {
		b.Lock()
		defer b.Unlock()
	}()
	a.Unlock()
	if text, err := os.ReadFile(file); err == nil {
		t.Errorf("recorded is %q", text)
	}
}
