package wholefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

func increment(path string) error {
	return Update(path, 100, func(text []byte, err error) ([]byte, error) {
		n, _ := strconv.Atoi(string(text))
		if n > 0 && err != nil {
			return nil, err
		}
		return []byte(strconv.Itoa(n + 1)), nil
	})
}

func TestUpdatesOfOneFileExcludeEachOther(t *testing.T) {
	path := filepath.Join(t.TempDir(), "n")
	const workers, times = 8, 25
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for range times {
				expect.Success(t, increment(path))
			}
		})
	}
	all.Wait()
	if text := must.Get(os.ReadFile(path))(t); string(text) != strconv.Itoa(workers*times) {
		t.Errorf("after %d updates it is %s", workers*times, text)
	}
}

func TestAnUpdateThatFailsChangesNothing(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "n")
	must.Do(t, increment(path))
	no := errors.New("no")
	expect.Error(t, Update(path, 100, func([]byte, error) ([]byte, error) { return nil, no }), no,
		"an update that is refused")
	expect.Error(t, Update(path, 0, func(_ []byte, err error) ([]byte, error) { return nil, err }), ErrTooLarge,
		"a file that is too large")
	expect.Error(t, Update(folder, 100, func([]byte, error) ([]byte, error) { return nil, nil }), ErrNotRegular,
		"a folder")
	expect.Error(t, Update(filepath.Join(folder, "none", "n"), 100, nil), fs.ErrNotExist, "a folder that is not there")
	if text := must.Get(os.ReadFile(path))(t); string(text) != "1" {
		t.Errorf("it is %s", text)
	}
}

func TestALockThatIsHeldIsGivenUpOn(t *testing.T) {
	folder := t.TempDir()
	unlock, locked, err := lock(folder)
	if err != nil || !locked {
		t.Skip("no locks of folders here")
	}
	defer func(old time.Duration) { patience = old }(patience)
	patience = 20 * time.Millisecond
	if err := increment(filepath.Join(folder, "n")); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("while another has the lock: %v", err)
	}
	unlock()
	expect.Success(t, increment(filepath.Join(folder, "n")))
}

// A draft is removed at once under the lock, and else when it is old. Other files stay.
func TestDraftsOfDeadProcessesAreRemoved(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{".n123", ".n456", ".nm1", ".n1x", "n1", ".n"} {
		must.Do(t, os.WriteFile(filepath.Join(folder, name), nil, 0o600))
	}
	old := time.Now().Add(-2 * time.Hour)
	must.Do(t, os.Chtimes(filepath.Join(folder, ".n123"), old, old))
	left := func() int { return len(must.Get(os.ReadDir(folder))(t)) }
	removeDrafts(filepath.Join(folder, "n"), false)
	if n := left(); n != 5 {
		t.Errorf("%d files are left without a lock", n)
	}
	removeDrafts(filepath.Join(folder, "n"), true)
	if n := left(); n != 4 {
		t.Errorf("%d files are left with it", n)
	}
}
