package bench

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
)

// BenchmarkJob is Do over a driver that does nothing, alone, with an allocation of about as many bytes as its shape says and a launch, and
// that with a reservation of a fixed size and of what was learned.
func BenchmarkJob(b *testing.B) {
	ctx := context.Background()
	rt, err := fencepost.Open(ctx, fencepost.Config{Driver: &drivertest.Null{}, Guard: "off", Budget: 1 << 30})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _, _ = rt.Close(ctx) }()
	m, err := rt.Load("null", []byte("null"))
	if err != nil {
		b.Fatal(err)
	}
	kernel, err := m.Kernel("null")
	if err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 37))
	var shapes [1 << 12]struct{ rows, bytes int }
	for i := range shapes {
		rows := 1024 + rng.IntN(1<<14)
		shapes[i].rows, shapes[i].bytes = rows, 4096+int(4*float64(rows)*(1+rng.Float64()/50))
	}
	bytes := 0
	for name, work := range map[string]func(*fencepost.Job) error{
		"empty": func(*fencepost.Job) error { return nil },
		"launch": func(j *fencepost.Job) error {
			s, err := fencepost.Alloc[byte](j, bytes)
			if err != nil {
				return err
			}
			return j.Launch(kernel, cuda.Blocks1D(256, 256), fencepost.Writes(s))
		},
	} {
		for as, options := range map[string]func(rows int) []fencepost.JobOption{
			"plain":    func(int) []fencepost.JobOption { return nil },
			"reserved": func(int) []fencepost.JobOption { return []fencepost.JobOption{fencepost.Reserve(1<<17, time.Minute)} },
			"admitted": func(rows int) []fencepost.JobOption {
				return []fencepost.JobOption{fencepost.Admit(), fencepost.Shape("rows", rows)}
			},
		} {
			b.Run(name+"/"+as, func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					shape := shapes[i%len(shapes)]
					bytes = shape.bytes
					if err := rt.Do(ctx, "bench", work, options(shape.rows)...); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
