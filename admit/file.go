package admit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/internal/refuse"
	"github.com/fencepost-gpu/fencepost/internal/wholefile"
)

// ErrModelFile is matched by the error of [Load] for a file of learned peaks that is damaged, empty
// or of another version. Learning begins anew then, and [Model.Save] may replace the file. A file
// counts as a damaged one of learned peaks in these cases:
//   - It has nothing but zeros, blanks and a byte order mark, such as an empty file.
//   - It begins with the first line of such a file, or with a part of that. One byte in six may be
//     another. Zeros, blanks and a byte order mark may stand before it.
//   - Its first line is lost or no text, and the rest is that of such a file.
//
// Any other file, such as one that begins with another text, is of another kind.
var ErrModelFile = errors.New("not a file of learned peaks that this version reads")

// errForeign is of a file that this package did not write, see [ErrModelFile]. Nothing replaces it.
var errForeign = errors.New("it is a file of another kind, and is left as it is: name another file")

// A file is a line with the version and a checksum of what follows, and a JSON text. Files of older
// versions of this module lack stamps.
const (
	magic    = "fencepost-admit"
	version  = 1
	maxBytes = 32 << 20
	mostPeak = 1 << 64
	// aHead is a first line and the byte behind it. Its zeros stand for hexadecimal digits.
	aHead     = magic + " 1 00000000\n["
	hexDigits = "0123456789abcdef"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// savedCurve is a curve in a file, with the size and peak of each run.
type savedCurve struct {
	Job   string       `json:"job"`
	Names [2]string    `json:"shape"`
	Runs  [][3]float64 `json:"runs"`
	// Stamps are those of the runs, each but the first as the distance to the one before.
	Stamps []stamp `json:"stamps,omitempty"`
	From   stamp   `json:"from,omitempty"`
}

// record is what a file has of a kind: its runs by their stamps, and the stamp from which on they
// count.
type record struct {
	runs []run
	from stamp
}

// records are those of a model or a file.
type records map[kind]record

// Save adds what the model has learned to a file, in one step: after an error or a crash the file
// is what it was before. Several models and processes may save to one file, also at once, and
// nothing that one of them has learned is lost: of each kind of job the file keeps the last 256
// runs of all, and of all kinds the 256 that ran last. The model takes over the kinds that it did
// not know. A file that is damaged or of another version is replaced. If path is a symbolic link,
// it stays one, and Save replaces the file that it leads to. Another hard link keeps what the file
// was before.
//
// Errors are those of the file system, and one for a path that is no regular file. It blocks in the
// file system, and for 10 s at most while others save to a file of the same folder; other calls of
// the model go on meanwhile.
func (m *Model) Save(path string) error {
	if m == nil {
		return refuse.Nil("Model.Save", "model", "make one, as new(admit.Model)")
	}
	err := wholefile.Update(path, maxBytes, func(text []byte, err error) ([]byte, error) {
		all := m.records()
		switch file, damaged := decode(text); {
		case err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, wholefile.ErrTooLarge):
			return nil, err
		case errors.Is(damaged, errForeign):
			return nil, damaged
		case err == nil && damaged == nil:
			m.merge(all, file)
		}
		return all.encode(), nil
	})
	if err != nil {
		return fmt.Errorf("saving learned peaks: %w", err)
	}
	return nil
}

// Load reads what [Model.Save] wrote. A file that is not there is an error that matches
// [io/fs.ErrNotExist]; one that is damaged matches [ErrModelFile], and nothing is taken from it. A
// file that Save did not write is another error: Load and Save leave it as it is. A
// path that is no regular file is an error at once: Load does not wait for a pipe.
func Load(path string) (*Model, error) {
	text, err := wholefile.Read(path, maxBytes)
	if err != nil && !errors.Is(err, wholefile.ErrTooLarge) {
		return nil, err
	}
	all, err := decode(text)
	if errors.Is(err, errForeign) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w; remove it to learn anew", path, ErrModelFile, err)
	}
	return modelOf(all), nil
}

func modelOf(all records) *Model {
	m := &Model{}
	for k, r := range all {
		m.add(k, r)
	}
	return m
}

// records are what the model would write.
func (m *Model) records() records {
	all := records{}
	if curves := m.curves.Load(); curves != nil {
		for k, c := range *curves {
			c.mu.Lock()
			all[k] = record{slices.Clone(c.runs[max(0, len(c.runs)-window):]), c.from}
			c.mu.Unlock()
		}
	}
	return all
}

// merge adds what a file has to what the model knows, and has the model know what it did not.
func (m *Model) merge(all, file records) {
	m.mu.Lock()
	forgot := maps.Clone(m.forgot)
	m.mu.Unlock()
	for k, r := range file {
		if last, ok := forgot[k.job]; ok {
			r.from = max(r.from, last+1)
		}
		if r = all[k].and(r); len(r.runs) > 0 {
			all[k] = r
		}
	}
	for len(all) > kinds {
		delete(all, slices.MinFunc(slices.Collect(maps.Keys(all)),
			func(a, b kind) int { return cmp.Compare(all[a].last(), all[b].last()) }))
	}
	for k, r := range all {
		if curves := m.curves.Load(); curves == nil || (*curves)[k] == nil && len(*curves) < kinds {
			m.add(k, record{slices.Clone(r.runs), r.from})
		}
	}
}

func (r record) last() stamp { return r.runs[len(r.runs)-1].stamp }

// and are the runs of both records that count in both.
func (r record) and(other record) record {
	both := record{append(slices.Clone(r.runs), other.runs...), max(r.from, other.from)}
	both.runs = slices.DeleteFunc(both.runs, func(r run) bool { return r.stamp < both.from })
	slices.SortFunc(both.runs, func(a, b run) int {
		return cmp.Or(cmp.Compare(a.stamp, b.stamp), slices.Compare(a.size[:], b.size[:]), cmp.Compare(a.peak, b.peak))
	})
	both.runs = slices.Compact(both.runs)
	both.runs = both.runs[max(0, len(both.runs)-window):]
	return both
}

func (all records) encode() []byte {
	saved := []savedCurve{}
	for k, r := range all {
		s := savedCurve{Job: k.job, Names: k.names, From: r.from}
		last := stamp(0)
		for _, r := range r.runs { // its peak is whole, or nothing
			s.Runs = append(s.Runs, [3]float64{r.size[0], r.size[1], math.Floor(r.peak)})
			s.Stamps = append(s.Stamps, r.stamp-last)
			last = r.stamp
		}
		saved = append(saved, s)
	}
	slices.SortFunc(saved, func(a, b savedCurve) int {
		return cmp.Or(strings.Compare(a.Job, b.Job), slices.Compare(a.Names[:], b.Names[:]))
	})
	text, _ := json.Marshal(saved) //nolint:errchkjson // a run has no number that JSON has not
	return append([]byte(headOf(text)+"\n"), text...)
}

// headOf is the first line before a body, without its end.
func headOf(body []byte) string {
	return fmt.Sprintf("%s %d %08x", magic, version, crc32.Checksum(body, castagnoli))
}

// isOurs is whether a file is one of learned peaks, also if it is damaged. It says no if another
// text stands first, because that may be all that its owner has of it.
func isOurs(text []byte) bool {
	rest := bytes.ReplaceAll(text, []byte{0}, nil) // an editor may have written two bytes a letter
	for before := -1; before != len(rest); {
		before = len(rest)
		rest = bytes.TrimSpace(rest)
		for _, mark := range []string{"\xef\xbb\xbf", "\xff\xfe", "\xfe\xff"} {
			rest = bytes.TrimPrefix(rest, []byte(mark))
		}
	}
	head, body, _ := bytes.Cut(rest, []byte("\n"))
	sum := fmt.Sprintf("%08x", crc32.Checksum(body, castagnoli))
	switch {
	case isHead(rest), len(head) < len(aHead) && len(body) > 0 && bytes.HasSuffix(head, []byte(sum)):
		return true
	case bytes.Contains(rest, []byte(magic)), // a whole file of learned peaks within another one
		!bytes.Contains(rest, []byte(`"],"runs":[[`)) && !bytes.Contains(rest, []byte(`]],"stamps":[`)):
		return false
	case isUnreadable(text[:min(len(aHead), len(text))]):
		return true
	}
	head, _, found := bytes.Cut(rest, []byte(`[{"job":"`))
	head = bytes.TrimRight(bytes.TrimSuffix(head, []byte("\n")), hexDigits)
	return found && strings.HasSuffix(aHead[:len(magic)+len(" 1 ")], string(head))
}

// isHead is whether text begins with the first line of a file of learned peaks, of which one byte
// in six may be another, or is the beginning of one.
func isHead(text []byte) bool {
	end, wrong := min(len(aHead), len(text)), 0
	for i := range end {
		if text[i] != aHead[i] && (aHead[i] != '0' || !strings.ContainsRune(hexDigits, rune(text[i]))) {
			wrong++
		}
	}
	return wrong == 0 || end >= 12 && wrong <= end/6
}

// isUnreadable is whether the begin of a file is that of no text.
func isUnreadable(text []byte) bool {
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && n == 1 && utf8.FullRune(text[i:]) || unicode.IsControl(r) && !unicode.IsSpace(r) {
			return true
		}
		i += n
	}
	return false
}

func decode(text []byte) (records, error) {
	head, body, _ := bytes.Cut(text, []byte("\n"))
	var of string
	var v int
	switch n, _ := fmt.Sscanf(string(head), "%s %d", &of, &v); {
	case len(text) == 0:
		return nil, errors.New("it is empty, or too large")
	case !isOurs(text):
		return nil, errForeign
	case n == 0 || of != magic:
		return nil, errors.New("it is damaged: its first line is cut short or not what was written")
	case n > 1 && v != version:
		return nil, fmt.Errorf("it has version %d, and this program reads version %d", v, version)
	case len(text) > maxBytes || string(head) != headOf(body):
		return nil, errors.New("it is damaged: what it says is not what was written")
	}
	var saved []savedCurve
	if err := json.Unmarshal(body, &saved); err != nil {
		return nil, err
	}
	if len(saved) > kinds {
		return nil, fmt.Errorf("it has %d kinds of jobs, and there are at most %d", len(saved), kinds)
	}
	all := records{}
	for _, s := range saved {
		k := kind{names.Bound(s.Job), [2]string{names.Bound(s.Names[0]), names.Bound(s.Names[1])}}
		r, err := s.record()
		if err != nil {
			return nil, fmt.Errorf("the job %q: %w", k.job, err)
		}
		all[k] = all[k].and(r) // two names may have become one
	}
	return all, nil
}

// record checks what a file says of a kind. Runs without stamps have their numbers, so that they
// are the same for each process that reads them.
func (s *savedCurve) record() (record, error) {
	if len(s.Runs) == 0 || len(s.Runs) > window || len(s.Stamps) != len(s.Runs) && len(s.Stamps) > 0 {
		return record{}, fmt.Errorf("it has %d runs with %d stamps", len(s.Runs), len(s.Stamps))
	}
	of, last := record{from: s.From}, stamp(0)
	for i, r := range s.Runs {
		if !(min(r[0], r[1], r[2]) >= 0 && max(r[0], r[1], r[2]) <= mostPeak) {
			return record{}, fmt.Errorf("it has a run that there cannot be: %v", r)
		}
		distance := stamp(1)
		if len(s.Stamps) > 0 {
			distance = s.Stamps[i]
		}
		if last += distance; last == 0 || max(last, distance) > latest {
			return record{}, fmt.Errorf("it has a run of a time that there cannot be: %d", last)
		}
		of.runs = append(of.runs, run{[2]float64{r[0], r[1]}, atLeastNothing(math.Floor(r[2])), last})
	}
	if of = of.and(record{}); len(of.runs) == 0 {
		return record{}, errors.New("none of its runs counts")
	}
	return of, nil
}
