package fencepost_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
)

// One handler behind the service's own routes.
func ExampleNewHandler() {
	rt, err := fencepost.Open(context.Background(), fencepost.Config{Device: fencepost.Sim})
	if err != nil {
		log.Fatal(err)
	}
	operators, err := fencepost.NewHandler(fencepost.HandlerConfig{Runtimes: []*fencepost.Runtime{rt}})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", operators)
	server := httptest.NewServer(mux) // on 127.0.0.1
	for _, path := range []string{"/metrics", "/healthz", "/debug/gpumem/", "/debug/gpumem/state"} {
		response, err := http.Get(server.URL + path)
		if err != nil {
			log.Fatal(err)
		}
		response.Body.Close()
		fmt.Println(path, response.Status)
	}
	server.Close()
	left, err := rt.Close(context.Background())
	fmt.Println(len(left.Leaks), err)
	// Output:
	// /metrics 200 OK
	// /healthz 200 OK
	// /debug/gpumem/ 200 OK
	// /debug/gpumem/state 200 OK
	// 0 <nil>
}

// What a request waited for on the device.
func ExampleRuntime_Explain() {
	ctx := context.Background()
	provider := sdktrace.NewTracerProvider() // the service's, with its sampler and exporter
	rt, err := fencepost.Open(ctx, fencepost.Config{Device: fencepost.Sim, TracerProvider: provider})
	if err != nil {
		log.Fatal(err)
	}
	request, span := provider.Tracer("service").Start(ctx, "request")
	err = rt.Do(request, "query", func(job *fencepost.Job) error {
		return rt.LaunchNamed(request, "scan", job.Stream().ID(), nil, func(context.Context) error { return nil })
	})
	span.End()
	if err != nil {
		log.Fatal(err)
	}
	if _, err := rt.Close(ctx); err != nil { // the device has done it all then
		log.Fatal(err)
	}
	why, err := rt.Explain(span.SpanContext().TraceID())
	fmt.Println(why.Launches, why.Worst() == nil, err)
	// Output: 1 true <nil>
}

// The probes of a service: one says whether to restart the process, the other
// whether to send it requests.
func ExampleRuntime_ReadyHandler() {
	ctx := context.Background()
	rt, err := fencepost.Open(ctx, fencepost.Config{Device: fencepost.Sim, OnHealth: func(h core.Health) {
		fmt.Println("told:", h.State)
	}})
	if err != nil {
		log.Fatal(err)
	}
	stopping := false
	mux := http.NewServeMux()
	mux.Handle("/healthz", rt.HealthHandler())
	mux.Handle("/readyz", rt.ReadyHandler(func() error {
		if stopping {
			return errors.New("the service is stopping")
		}
		return nil
	}))
	probe := func() {
		for _, path := range []string{"/healthz", "/readyz"} {
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			fmt.Println(path, w.Code)
		}
	}
	probe()
	stopping = true
	probe()
	if _, err := rt.Close(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// /healthz 200
	// /readyz 200
	// /healthz 200
	// /readyz 503
	// told: closed
}

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
