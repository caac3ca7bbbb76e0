package fencepost_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/telemetry/incident"
)

func ExampleRuntime_SwitchGuard() {
	ctx := context.Background()
	rt, _ := fencepost.Open(ctx, fencepost.Config{Device: fencepost.Sim, Guard: "ledger"})
	defer rt.Close(ctx)
	mode, tags := fencepost.GuardMode("sample:1048576"), []core.Tag{"sort.keys"}
	if err := rt.SwitchGuard(ctx, fencepost.GuardChange{Mode: &mode, HuntTags: &tags}); err != nil {
		fmt.Println(err)
	}
	fmt.Println(rt.GuardStatus().Setting, rt.GuardStatus().HuntTags)
	wrong := fencepost.GuardMode("paranoid")
	fmt.Println(rt.SwitchGuard(ctx, fencepost.GuardChange{Mode: &wrong}) != nil, rt.GuardStatus().Setting)
	// Output:
	// sample:1048576 [sort.keys]
	// true sample:1048576
}

// The endpoint belongs on a server that listens on a loopback address.
func ExampleRuntime_GuardHandler() {
	ctx := context.Background()
	rt, _ := fencepost.Open(ctx, fencepost.Config{Device: fencepost.Sim})
	defer rt.Close(ctx)
	mux := http.NewServeMux()
	mux.Handle("/guard", rt.GuardHandler())
	server := httptest.NewServer(mux) // on 127.0.0.1
	defer server.Close()
	response, err := http.Post(server.URL+"/guard", "application/x-www-form-urlencoded", strings.NewReader("mode=hunt&hunt_tags=sort.keys"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer response.Body.Close()
	fmt.Println(response.Status, rt.Guard().Mode())
	// Output: 200 OK hunt
}

// Findings are files in a folder, to be read here or elsewhere.
func ExampleConfig_incidents() {
	ctx := context.Background()
	dir, _ := os.MkdirTemp("", "incidents")
	defer os.RemoveAll(dir)
	rt, _ := fencepost.Open(ctx, fencepost.Config{Device: fencepost.Sim, Guard: "ledger", Incidents: dir})
	b, _ := rt.Allocate(ctx, core.Request{Bytes: 256, Tag: "cache"})
	_, _ = rt.Deallocate(ctx, b.ID)
	_, err := rt.Deallocate(ctx, b.ID) // again
	fmt.Println("refused:", err != nil)
	_, _ = rt.Close(ctx)
	in, err := incident.ReadFile(rt.Incidents().Files()[0])
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(in.Finding.Kind, in.Finding.Victim.Tag, in.Finding.Error.Classes, in.Guard.Mode)
	// Output:
	// refused: true
	// double-free cache [use_after_free] ledger
}
