package profile_test

import (
	"context"
	"fmt"
	"net/http"
	"os"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/telemetry/profile"
)

// A profile stands beside those of net/http/pprof.
func ExampleHandler() {
	device := coretest.NewFake(0) // the outermost layer of a stack
	source := profile.Source{Resource: device, Allocations: profile.NewAllocations(device)}
	mux := http.NewServeMux()
	mux.Handle("/debug/pprof/gpumem", profile.Handler(source))
	fmt.Println("go tool pprof http://localhost:6060/debug/pprof/gpumem")
	// Output: go tool pprof http://localhost:6060/debug/pprof/gpumem
}

func ExampleWrite() {
	device := coretest.NewFake(0)
	if _, err := device.Allocate(context.Background(), core.Request{Bytes: 4096, Tag: "sort.keys"}); err != nil {
		fmt.Println(err)
		return
	}
	if err := profile.Write(os.Stdout, 1, profile.Source{Resource: device}); err != nil {
		fmt.Println(err)
	}
	// Output:
	// gpumem profile: 4096 bytes in 1 blocks in use, 0 bytes in 0 blocks ever allocated
	//
	// 4096 bytes in 1 [0 bytes in 0] @ device=0 state=live stream=default tag=sort.keys
	// #	unsampled
}
