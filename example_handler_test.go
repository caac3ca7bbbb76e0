package fencepost_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/fencepost-gpu/fencepost"
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
