package transcript

import (
	"fmt"
	"os"
	"path/filepath"
)

// file is a transcript in a file.
type file struct{ path, text string }

// files are those in testdata, by name.
func files() (all []file, err error) {
	paths, err := filepath.Glob(filepath.Join("testdata", "*.txt"))
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("there are no transcripts")
	}
	for _, path := range paths {
		text, readErr := os.ReadFile(path)
		if readErr != nil {
			return nil, readErr
		}
		all = append(all, file{path, string(text)})
	}
	return all, err
}

// now is the text that the file must have.
func (f *file) now() (string, error) {
	t, err := Parse(f.text)
	if err != nil {
		return "", fmt.Errorf("%s: %w", f.path, err)
	}
	text, err := t.Text()
	if err != nil {
		return "", fmt.Errorf("%s: %w", f.path, err)
	}
	return text, nil
}
