package dump

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/telemetry/history"
	"github.com/fencepost-gpu/fencepost/telemetry/internal/rotated"
)

// form is one of the files of a dump. The page that reads the snapshot does not
// unpack it; the others do.
type form struct {
	format history.Format
	suffix string
	packed bool
}

var forms = [...]form{
	{history.JSONLines, ".jsonl.gz", true},
	{history.Perfetto, ".trace.json.gz", true},
	{history.PyTorch, ".pickle", false},
}

// The pattern of our names. The folder removes nothing else.
var namePattern = regexp.MustCompile(`^\d{8}T\d{6}\.\d{9}Z-\d{6,20}-dump-[a-z-]{1,40}\.(jsonl\.gz|trace\.json\.gz|pickle)$`)

// lastNumber numbers the dumps of the process, so that runtimes may share a
// folder.
var lastNumber atomic.Uint64

// write writes one dump, as far as it can, and returns its files.
func (w *Writer) write(t Trigger) (paths []string, err error) {
	source, err := w.cfg.Source()
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%s-%06d-dump-%s", w.cfg.now().UTC().Format(rotated.NameTime), lastNumber.Add(1), strings.ReplaceAll(string(t), "_", "-"))
	var errs []error
	room := w.folder.Max.Bytes
	for _, f := range forms {
		path, bytes, err := w.writeForm(source, f, name, room)
		if path != "" {
			paths = append(paths, path)
			room -= bytes
		}
		errs = append(errs, err)
	}
	return paths, errors.Join(errs...)
}

// writeForm writes one file, if it fits into room: what the folder may hold less
// the dump's other files, which must not make room for this one.
func (w *Writer) writeForm(source history.Source, f form, name string, room int64) (path string, bytes int64, err error) {
	text, err := f.encode(source)
	if err != nil {
		return "", 0, fmt.Errorf("%s: %w", f.format, err)
	}
	bytes = int64(len(text))
	if bytes > room {
		return "", 0, fmt.Errorf("%s: %d bytes are more than the folder may hold beside the dump's other files: raise MaxBytes", f.format, bytes)
	}
	path, _, err = w.folder.Add(name+f.suffix, text)
	return path, bytes, err
}

func (f form) encode(source history.Source) ([]byte, error) {
	var text bytes.Buffer
	if !f.packed {
		err := source.Write(&text, f.format)
		return text.Bytes(), err
	}
	packer := gzip.NewWriter(&text)
	err := errors.Join(source.Write(packer, f.format), packer.Close())
	return text.Bytes(), err
}

// IsFile reports whether a name is of the form that [Writer] gives to the files
// of one format.
func IsFile(name string, f history.Format) bool {
	i := slices.IndexFunc(forms[:], func(x form) bool { return x.format == f })
	return i >= 0 && strings.HasSuffix(name, forms[i].suffix) && namePattern.MatchString(name)
}
