package admit

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzLoad reads anything, with a checksum that is right: what is taken is bounded, predicts, and is
// saved and read as the same.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(`[{"job":"a","shape":["x",""],"runs":[[1,0,100],[2,0,200]]}]`))
	f.Add([]byte(`[{"job":"a","shape":["x","y"],"runs":[[0,0,1],[18446744073709551615,9e18,1e19],[5,5,5]]}]`))
	f.Add([]byte(`[{"job":"a","runs":[[1,2,0]]},{"job":"a","runs":[[1e300,1,1]]},{"job":"\ud800"}]`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, body []byte) {
		all, err := decode(append(fmt.Appendf(nil, "%s %d %08x\n", magic, version, crc32.Checksum(body, castagnoli)),
			body...))
		if err != nil {
			return
		}
		m := modelOf(all)
		curves := m.curves.Load()
		if curves == nil {
			return
		}
		if len(*curves) > kinds {
			t.Fatal("too many kinds")
		}
		for k, c := range *curves {
			for _, n := range [][2]int{{}, {1, 1}, {1 << 62, 1 << 62}} {
				if p := m.Predict(k.job, Shape{names: k.names, numbers: n}); p.Low > p.Bytes || p.Runs == 0 ||
					p.Runs > len(c.runs) {
					t.Fatalf("%v: %+v", n, p)
				}
			}
		}
		text := m.records().encode()
		again, err := decode(text)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again.encode(), text) || !bytes.Equal(modelOf(again).records().encode(), text) {
			t.Fatalf("it is saved as another")
		}
	})
}

// FuzzSave learns runs of jobs with any names, shapes and peaks: what is saved is read.
func FuzzSave(f *testing.F) {
	f.Add("tenant-\xe9", "tenant-\xe8", uint64(0), 1<<40, uint8(3))
	f.Add("", "\xff\xfe", uint64(1<<64-1), -1, uint8(30))
	f.Add("a\u2028\x00<>&", strings.Repeat("\xf0", 300), uint64(1), 0, uint8(255))
	f.Fuzz(func(t *testing.T, a, b string, peak uint64, size int, runs uint8) {
		m, path := new(Model), filepath.Join(t.TempDir(), "peaks")
		type seen struct {
			job   string
			shape Shape
		}
		all := []seen{{a, Shape{}}, {b, Shape{}}, {a, ShapeOf(b, size)}, {b, ShapeOf(a, size).And(b, 1)}, {"honest", Shape{}}}
		for range int(runs) + 1 {
			for _, s := range all {
				m.Observe(s.job, s.shape, peak)
			}
			peak = peak*5 + 1
		}
		if err := m.Save(path); err != nil {
			t.Fatal(err)
		}
		again, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			if p, q := m.Predict(s.job, s.shape), again.Predict(s.job, s.shape); p.Runs == 0 || q.Runs == 0 ||
				q.Runs < min(p.Runs, 256) {
				t.Fatalf("%q: %+v, and from the file %+v", s.job, p, q)
			}
		}
	})
}
