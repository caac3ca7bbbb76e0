package fit

import (
	"math/rand/v2"
	"testing"
)

const devicePage = 2 << 20

// BenchmarkPair is a Take and a Give: of one block again and again, and, with 1000 blocks
// live, of the oldest or of any of them. Half of the sizes are below 64 KiB.
func BenchmarkPair(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 2))
	var sizes [4096]uint64
	for i := range sizes {
		sizes[i] = 1 + random.Uint64N(1<<(8+random.UintN(16)))
	}
	begin := func(b *testing.B, n int) (*Fit, []uint64) {
		f := New(devicePage)
		f.Add(1<<40, 1000*devicePage, 0)
		live := make([]uint64, n)
		for i := range live {
			live[i], _ = f.Take(sizes[i%len(sizes)])
		}
		b.ReportAllocs()
		b.ResetTimer()
		return f, live
	}
	b.Run("newest", func(b *testing.B) {
		f, _ := begin(b, 0)
		for i := range b.N {
			ptr, _ := f.Take(sizes[i%len(sizes)])
			f.Give(ptr, uint64(i))
		}
	})
	b.Run("oldest-of-1000", func(b *testing.B) {
		f, live := begin(b, 1000)
		next := 0
		for i := range b.N {
			f.Give(live[next], uint64(i))
			live[next], _ = f.Take(sizes[i%len(sizes)])
			if next++; next == len(live) {
				next = 0
			}
		}
	})
	b.Run("any-of-1000", func(b *testing.B) {
		f, live := begin(b, 1000)
		for i := range b.N {
			at := int(uint32(i) * 2654435761 >> 8 % 1000)
			f.Give(live[at], uint64(i))
			live[at], _ = f.Take(sizes[i%len(sizes)])
		}
	})
}
