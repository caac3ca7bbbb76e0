package admit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/internal/refuse"
	"github.com/fencepost-gpu/fencepost/internal/wholefile"
)

// ErrModelFile is matched by the error of [Load] for a file that is damaged, or of another kind
// or version. Learning begins anew then, and [Model.Save] may replace the file.
var ErrModelFile = errors.New("not a file of learned peaks that this version reads")

// A file is a line with the version and a checksum of what follows, and a JSON text.
const (
	magic    = "fencepost-admit"
	version  = 1
	maxBytes = 32 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// savedCurve is a curve in a file, with the size and peak of each run.
type savedCurve struct {
	Job   string       `json:"job"`
	Names [2]string    `json:"shape"`
	Runs  [][3]float64 `json:"runs"`
}

// Save writes what the model knows, in one step: after an error or a crash the file is what it was
// before. Errors are those of the file system. It blocks in it, and other calls go on meanwhile.
func (m *Model) Save(path string) error {
	if m == nil {
		return refuse.Nil("Model.Save", "model", "make one, as new(admit.Model)")
	}
	if err := wholefile.Write(path, m.encode()); err != nil {
		return fmt.Errorf("saving learned peaks: %w", err)
	}
	return nil
}

// Load reads what [Model.Save] wrote. A file that is not there is an error that matches
// [io/fs.ErrNotExist]; one that is damaged matches [ErrModelFile], and nothing is taken from it.
func Load(path string) (*Model, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, maxBytes+1))
	if err != nil {
		return nil, err
	}
	m, err := decode(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w; remove it to learn anew", path, ErrModelFile, err)
	}
	return m, nil
}

func (m *Model) encode() []byte {
	saved := []savedCurve{}
	if curves := m.curves.Load(); curves != nil {
		for k, c := range *curves {
			s := savedCurve{Job: k.job, Names: k.names}
			c.mu.Lock()
			for _, r := range c.runs[max(0, len(c.runs)-window):] {
				s.Runs = append(s.Runs, [3]float64{r.size[0], r.size[1], math.Round(r.peak)})
			}
			c.mu.Unlock()
			saved = append(saved, s)
		}
	}
	slices.SortFunc(saved, func(a, b savedCurve) int {
		return cmp.Or(strings.Compare(a.Job, b.Job), slices.Compare(a.Names[:], b.Names[:]))
	})
	text, _ := json.Marshal(saved) //nolint:errchkjson // a run has no number that JSON has not
	return append(fmt.Appendf(nil, "%s %d %08x\n", magic, version, crc32.Checksum(text, castagnoli)), text...)
}

func decode(text []byte) (*Model, error) {
	head, body, _ := bytes.Cut(text, []byte("\n"))
	var of string
	var v int
	var sum uint32
	switch n, err := fmt.Sscanf(string(head), "%s %d %08x", &of, &v, &sum); {
	case n == 0 || of != magic:
		return nil, errors.New("it is a file of another kind")
	case n > 1 && v != version:
		return nil, fmt.Errorf("it has version %d, and this program reads version %d", v, version)
	case err != nil || len(text) > maxBytes || crc32.Checksum(body, castagnoli) != sum:
		return nil, errors.New("it is damaged: what it says is not what was written")
	}
	var saved []savedCurve
	if err := json.Unmarshal(body, &saved); err != nil {
		return nil, err
	}
	if len(saved) > kinds {
		return nil, fmt.Errorf("it has %d kinds of jobs, and there are at most %d", len(saved), kinds)
	}
	m := &Model{}
	for _, s := range saved {
		k := kind{names.Bound(s.Job), [2]string{names.Bound(s.Names[0]), names.Bound(s.Names[1])}}
		runs := make([]run, len(s.Runs))
		for i, r := range s.Runs {
			runs[i] = run{[2]float64{r[0], r[1]}, r[2]}
			if r[0] < 0 || r[1] < 0 || r[2] < 1 || max(r[0], r[1], r[2]) > 1<<64 {
				return nil, fmt.Errorf("the job %q has a run that there cannot be: %v", k.job, r)
			}
		}
		if len(runs) == 0 || len(runs) > window || m.add(k, runs) != nil {
			return nil, fmt.Errorf("the job %q is there twice, or has %d runs", k.job, len(runs))
		}
	}
	return m, nil
}
