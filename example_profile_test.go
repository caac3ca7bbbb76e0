package fencepost_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"

	"github.com/fencepost-gpu/fencepost"
)

// The profile stands beside those of net/http/pprof.
func ExampleRuntime_ProfileHandler() {
	ctx := context.Background()
	rt, err := fencepost.Open(ctx, fencepost.Config{Device: fencepost.Sim})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close(ctx)
	mux := http.NewServeMux()
	mux.Handle("/debug/pprof/gpumem", rt.ProfileHandler())
	fmt.Println("go tool pprof http://localhost:6060/debug/pprof/gpumem")
	// Output: go tool pprof http://localhost:6060/debug/pprof/gpumem
}

// The history is served beside the profile, and dumped into a folder on request.
func ExampleRuntime_Dump() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "incidents")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	rt, err := fencepost.Open(ctx, fencepost.Config{Device: fencepost.Sim, Incidents: dir})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rt.Close(ctx)
	mux := http.NewServeMux()
	mux.Handle("/debug/gpumem/history", rt.HistoryHandler())
	files, err := rt.Dump(ctx)
	fmt.Println(len(files), err)
	// Output: 3 <nil>
}
