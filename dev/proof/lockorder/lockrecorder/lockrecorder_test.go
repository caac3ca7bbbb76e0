package lockrecorder

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

type (
	first  = [1]byte
	second = [2]byte
	third  = [3]byte
)

// pass takes a lock and gives it back.
func pass(lock, unlock func()) {
	lock()
	unlock()
}

// The calls of this package are left out of stacks, so these tests count as product.
func TestAPairIsRecordedOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pairs")
	t.Setenv(File, file)
	var (
		a Mutex[first]
		b RWMutex[second]
		c Mutex[third]
	)
	for range 2 {
		a.Lock()
		pass(b.RLock, b.RUnlock)
		pass(b.Lock, b.Unlock)
		if !c.TryLock() { // no second half of a pair, but a first half of the next
			t.Fatal("nobody holds it")
		}
		pass(b.Lock, b.Unlock)
		a.Unlock()
		done := make(chan struct{})
		go func() { // another goroutine may unlock it
			c.Unlock()
			close(done)
		}()
		<-done
	}
	pass(a.Lock, a.Unlock) // nothing is held any more
	text := must.Get(os.ReadFile(file))(t)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "1 2 ") || !strings.HasPrefix(lines[1], "3 2 ") {
		t.Errorf("recorded are %q", lines)
	}
	for i := range held {
		if len(held[i].of) > 0 {
			t.Errorf("%d goroutines hold locks", len(held[i].of))
		}
	}
}
