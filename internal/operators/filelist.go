package operators

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
)

// maxListed is how many files are listed, the newest.
const maxListed = 64

// fileForm is a sort of files.
type fileForm struct {
	// Name tells the forms apart, and Download is what a file is called that was
	// fetched, whatever it is called here.
	Name, Download string
	// Is says which names are of the form. They begin with a time, so that the
	// newest sort last.
	Is func(name string) bool
	// MaxBytes is the largest that is listed and handed out.
	MaxBytes int64
}

// fileList hands out the files of a folder by number: a client names no path. The
// numbers are those of files that were listed, whose names are of a known form, and
// what is no regular file of a bounded size is not there. It is safe for concurrent use.
type fileList struct {
	dir   string
	forms []fileForm

	mu      sync.Mutex
	numbers map[string]int // of the names listed last
	last    int
}

// newFileList lists a folder, which need not be there yet.
func newFileList(dir string, forms ...fileForm) *fileList {
	return &fileList{dir: dir, forms: forms, numbers: map[string]int{}}
}

// numberedFile is one that is listed.
type numberedFile struct {
	// Index is the file's number for as long as it is listed. It is never that of
	// another one.
	Index int
	Name  string
	Form  fileForm
	Bytes int64
}

// list is the newest files, newest first.
func (s *fileList) list() ([]numberedFile, error) {
	root, err := os.OpenRoot(s.dir)
	if errors.Is(err, fs.ErrNotExist) { // nothing was written yet
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, err
	}
	var files []numberedFile
	for _, e := range entries {
		if form, ok := s.form(e.Name()); ok && e.Type().IsRegular() {
			if info, err := root.Lstat(e.Name()); err == nil && form.takes(info) { // else it is gone
				files = append(files, numberedFile{Name: e.Name(), Form: form, Bytes: info.Size()})
			}
		}
	}
	slices.SortFunc(files, func(a, b numberedFile) int { return strings.Compare(b.Name, a.Name) })
	files = files[:min(len(files), maxListed)]
	s.number(files)
	return files, nil
}

func (s *fileList) form(name string) (fileForm, bool) {
	i := slices.IndexFunc(s.forms, func(f fileForm) bool { return f.Is(name) })
	if i < 0 {
		return fileForm{}, false
	}
	return s.forms[i], true
}

func (f *fileForm) takes(info fs.FileInfo) bool {
	return info.Mode().IsRegular() && info.Size() <= f.MaxBytes
}

// number gives new files numbers, the oldest the lowest, and forgets those that
// are listed no more.
func (s *fileList) number(files []numberedFile) {
	s.mu.Lock()
	defer s.mu.Unlock()
	numbers := make(map[string]int, len(files))
	for i := range slices.Backward(files) {
		name := files[i].Name
		n := s.numbers[name]
		if n == 0 {
			s.last++
			n = s.last
		}
		numbers[name], files[i].Index = n, n
	}
	s.numbers = numbers
}

// open opens the file of a number that list told. Its size is what may be
// read of it. The error of one that was not listed, is gone, or is no file that
// would be listed now, matches [fs.ErrNotExist].
func (s *fileList) open(index int) (*os.File, numberedFile, error) {
	name := s.name(index)
	form, ok := s.form(name)
	if !ok {
		return nil, numberedFile{}, fs.ErrNotExist
	}
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return nil, numberedFile{}, err
	}
	defer root.Close()
	named, err := root.Lstat(name)
	if err != nil || !form.takes(named) {
		return nil, numberedFile{}, cmp.Or(err, fs.ErrNotExist)
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, numberedFile{}, err
	}
	// What was opened is what was looked at, and no link that took its place.
	opened, err := f.Stat()
	if err != nil || !os.SameFile(named, opened) || !form.takes(opened) {
		return nil, numberedFile{}, errors.Join(cmp.Or(err, fs.ErrNotExist), f.Close())
	}
	return f, numberedFile{Index: index, Name: name, Form: form, Bytes: opened.Size()}, nil
}

func (s *fileList) name(index int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, n := range s.numbers {
		if n == index {
			return name
		}
	}
	return ""
}
