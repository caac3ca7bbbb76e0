package operators

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

func notesIn(dir string) *fileList {
	return newFileList(dir, fileForm{Name: "note", Download: "note.txt", MaxBytes: 100, Is: func(name string) bool { return strings.HasPrefix(name, "n-") }})
}

func write(t *testing.T, dir, name string, bytes int) {
	t.Helper()
	must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(strings.Repeat("x", bytes)), 0o600))
}

func list(t *testing.T, s *fileList) []numberedFile {
	t.Helper()
	return must.Get(s.list())(t)
}

func refused(t *testing.T, s *fileList, index int, why string) {
	t.Helper()
	f, _, err := s.open(index)
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s: number %d: %v", why, index, err)
	}
	if err == nil {
		_ = f.Close()
	}
}

func TestFilesAreListedNewestFirstAndFetchedByNumber(t *testing.T) {
	dir := t.TempDir()
	s := notesIn(filepath.Join(dir, "later"))
	if files := list(t, s); len(files) != 0 {
		t.Errorf("a folder that is not there has %+v", files)
	}
	s = notesIn(dir)
	refused(t, s, 1, "nothing was listed")
	write(t, dir, "n-1", 10)
	write(t, dir, "n-2", 20)
	write(t, dir, "other", 10)
	files := list(t, s)
	if len(files) != 2 || files[0].Name != "n-2" || files[0].Index != 2 || files[0].Bytes != 20 || files[1].Index != 1 {
		t.Fatalf("%+v", files)
	}
	f, file, err := s.open(1)
	must.Do(t, err)
	defer f.Close()
	if text, err := io.ReadAll(f); err != nil || len(text) != 10 || file.Name != "n-1" || file.Form.Download != "note.txt" {
		t.Errorf("%d bytes, %v, %+v", len(text), err, file)
	}
	for _, index := range []int{-1, 0, 3, 1 << 62} {
		refused(t, s, index, "out of range")
	}
}

// A number is one file's, also when others go: who was told a number never gets
// another file for it.
func TestANumberIsNeverAnotherFiles(t *testing.T) {
	dir := t.TempDir()
	s := notesIn(dir)
	write(t, dir, "n-1", 1)
	write(t, dir, "n-2", 2)
	list(t, s)
	must.Do(t, os.Remove(filepath.Join(dir, "n-1")))
	refused(t, s, 1, "vanished since it was listed")
	write(t, dir, "n-3", 3)
	if files := list(t, s); len(files) != 2 || files[0].Index != 3 || files[1].Index != 2 {
		t.Errorf("%+v", files)
	}
	write(t, dir, "n-1", 1)
	refused(t, s, 1, "its number was forgotten")
	if files := list(t, s); files[2].Index != 4 {
		t.Errorf("%+v", files)
	}
}

func TestWhatIsNoPlainFileIsNotThere(t *testing.T) {
	secrets, dir := t.TempDir(), t.TempDir()
	write(t, secrets, "n-secret", 5)
	write(t, dir, "n-0", 5)
	link := func(to, name string) {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Skip(err)
		}
	}
	link(filepath.Join(secrets, "n-secret"), "n-absolute")
	link("../"+filepath.Base(secrets)+"/n-secret", "n-relative")
	link("n-0", "n-inside")
	must.Do(t, os.Mkdir(filepath.Join(dir, "n-folder"), 0o700))
	write(t, dir, "n-large", 101)
	s := notesIn(dir)
	if files := list(t, s); len(files) != 1 || files[0].Name != "n-0" {
		t.Fatalf("%+v", files)
	}
	for i := range 10 {
		if i != 1 {
			refused(t, s, i, "not listed")
		}
	}
	// What takes the place of a file that was listed is refused, too.
	replace := func(why string, put func()) {
		must.Do(t, os.RemoveAll(filepath.Join(dir, "n-0")))
		put()
		refused(t, s, 1, why)
	}
	replace("a link out of the folder", func() { link(filepath.Join(secrets, "n-secret"), "n-0") })
	replace("a link within the folder", func() { link("n-large", "n-0") })
	replace("a folder", func() { _ = os.Mkdir(filepath.Join(dir, "n-0"), 0o700) })
	replace("a file that has grown", func() { write(t, dir, "n-0", 101) })
	replace("nothing", func() {})
	must.Do(t, os.RemoveAll(dir))
	refused(t, s, 1, "the folder is gone")
}

func TestTheListIsBounded(t *testing.T) {
	dir := t.TempDir()
	for i := range 200 {
		write(t, dir, fmt.Sprintf("n-%04d", i), 1)
	}
	s := notesIn(dir)
	files := list(t, s)
	if len(files) != 64 || files[0].Name != "n-0199" || files[63].Name != "n-0136" {
		t.Fatalf("%d files, from %v to %v", len(files), files[0], files[len(files)-1])
	}
	if f, _, err := s.open(files[63].Index); err != nil {
		t.Error(err)
	} else {
		_ = f.Close()
	}
}
