package fencepost_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
)

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
