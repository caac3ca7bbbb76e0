package transcript

import (
	"fmt"
	"os"
	"path/filepath"
)

// File is a transcript in a file.
type File struct {
	Path string
	// Text is what the file has.
	Text string
}

// Files are those of the package in a folder, by name.
func Files(folder string) ([]File, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "testdata", "*.txt"))
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("there are no transcripts below %s", folder)
	}
	if err != nil {
		return nil, err
	}
	var files []File
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		files = append(files, File{path, string(text)})
	}
	return files, nil
}

// Now is the text that the file must have.
func (f *File) Now() (string, error) {
	t, err := Parse(f.Text)
	if err != nil {
		return "", fmt.Errorf("%s: %w", f.Path, err)
	}
	text, err := t.Text()
	if err != nil {
		return "", fmt.Errorf("%s: %w", f.Path, err)
	}
	return text, nil
}

// Write writes the text that the file must have.
func (f *File) Write() error {
	text, err := f.Now()
	if err != nil {
		return err
	}
	return os.WriteFile(f.Path, []byte(text), 0o644) //nolint:gosec // a file of the repository
}
