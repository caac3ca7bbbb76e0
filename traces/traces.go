// Package traces holds real allocation traces as data, embedded in the binary
// so that the demo needs no file beside it. README.md, in the same folder,
// says what was recorded and how. internal/traceio/alloctrace reads the format.
package traces

import (
	"embed"
	"fmt"
	"io"
	"io/fs"
	"strings"
)

//go:embed *.csv.gz
var files embed.FS

// suffix is what a trace's file name has behind its name.
const suffix = ".csv.gz"

// Names lists the traces, such as "gpt2", in alphabetical order.
func Names() []string {
	// Reading the root of an embedded file system cannot fail.
	entries, _ := fs.ReadDir(files, ".")
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), suffix))
	}
	return names
}

// Open opens the trace of that name, as [Names] spells it, or of that file
// name. The content is gzipped CSV. A name that is none is an error that
// matches [fs.ErrNotExist] and lists those there are.
func Open(name string) (io.ReadCloser, error) {
	f, err := files.Open(strings.TrimSuffix(name, suffix) + suffix)
	if err != nil {
		return nil, fmt.Errorf("trace %q: %w (there are: %s)", name, fs.ErrNotExist, strings.Join(Names(), ", "))
	}
	return f, nil
}
