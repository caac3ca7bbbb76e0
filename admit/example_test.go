package admit_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/fencepost-gpu/fencepost/admit"
)

// llama stands for a library in the manner of llama.cpp: it takes the device's memory itself, and
// says how much only when it has.
type llama struct {
	mu    sync.Mutex
	bytes uint64 // as NVML would say of the process
}

// load loads a model with a cache for so many tokens, and returns what the process has more.
func (l *llama) load(weights uint64, context int) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := weights + 128<<10*uint64(context) + 300<<20
	l.bytes += taken
	return taken
}

func (l *llama) unload(bytes uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes -= bytes
}

// A service loads models through a library that takes its memory itself. The gate has learned from
// the first loads, and refuses what never fits before the library fails.
func Example() {
	const gib = 1 << 30
	ctx, library := context.Background(), &llama{}
	gate, err := admit.New(admit.Config{Limit: 24 * gib, Passes: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	generate := func(tokens int) error {
		a, err := gate.Enter(ctx, "model-7b", admit.ShapeOf("context", tokens))
		if err != nil {
			return err
		}
		defer a.Abort()
		bytes := library.load(5*gib, tokens)
		defer library.unload(bytes)
		if err := a.Observe(bytes); err != nil {
			return err
		}
		a.Settle(bytes) // it will not grow any more: the rest is for others
		// ... answer requests ...
		a.Leave()
		return nil
	}
	for tokens := 1024; tokens <= 32_768; tokens += 1024 {
		if err := generate(tokens); err != nil {
			fmt.Println(err)
		}
	}
	a, err := gate.Enter(ctx, "model-7b", admit.ShapeOf("context", 8192))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("a context of 8192 reserves %.1f GiB\n", float64(a.Reserved())/gib)
	a.Leave()
	gate.SetLimit(8 * gib) // another process has taken the rest
	_, err = gate.Enter(ctx, "model-7b", admit.ShapeOf("context", 32_768))
	var never *admit.NeverFitsError
	if errors.As(err, &never) {
		fmt.Printf("a context of 32768 needs %.0f GiB at least, and there are %d\n", float64(never.Needs)/gib, never.Limit/gib)
	}
	fmt.Println("runs under their reservation:", gate.Stats().Errors.Under)
	// Output:
	// a context of 8192 reserves 6.4 GiB
	// a context of 32768 needs 9 GiB at least, and there are 8
	// runs under their reservation: 0
}
