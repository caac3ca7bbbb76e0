package admit

import (
	"bytes"
	"fmt"
	"hash/crc32"
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
		m, err := decode(append(fmt.Appendf(nil, "%s %d %08x\n", magic, version, crc32.Checksum(body, castagnoli)), body...))
		if err != nil {
			return
		}
		curves := m.curves.Load()
		if curves == nil {
			return
		}
		if len(*curves) > kinds {
			t.Fatal("too many kinds")
		}
		for k, c := range *curves {
			for _, n := range [][2]int{{}, {1, 1}, {1 << 62, 1 << 62}} {
				if p := m.Predict(k.job, Shape{names: k.names, numbers: n}); p.Low > p.Bytes || p.Bytes == 0 || p.Runs == 0 || p.Runs > len(c.runs) {
					t.Fatalf("%v: %+v", n, p)
				}
			}
		}
		text := m.encode()
		again, err := decode(text)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again.encode(), text) {
			t.Fatalf("it is saved as another")
		}
	})
}
