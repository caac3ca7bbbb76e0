package logging_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
)

// work allocates two blocks, one of them more than there is, and frees one.
func work(sinks ...logging.Sink) error {
	ctx := context.Background()
	backend := coretest.NewFake(0)
	log, err := logging.New(backend, logging.Config{Sinks: sinks})
	if err != nil {
		return err
	}
	block, err := log.Allocate(ctx, core.Request{Bytes: 4096, Stream: 3, Tag: "sort.keys"})
	if err != nil {
		return err
	}
	backend.FailNext("Allocate", &core.DriverError{Op: "cuMemAllocAsync", Code: 2,
		Name: "CUDA_ERROR_OUT_OF_MEMORY", Text: "out of memory", OutOfMemory: true})
	if _, err := log.Allocate(ctx, core.Request{Bytes: 1 << 30, Tag: "join"}); err == nil {
		return errors.New("the second allocation should have failed")
	}
	_, err = log.Deallocate(ctx, block.ID)
	return err
}

// closing bounds the time in which a sink must have written everything.
func closing(sink logging.Sink) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return sink.Close(ctx)
}

func ExampleNew() {
	ring := logging.NewRing(1024)
	log, err := logging.New(coretest.NewFake(0), logging.Config{Level: logging.Uses, Sinks: []logging.Sink{ring}})
	if err != nil {
		fmt.Println(err)
		return
	}
	rt, err := core.NewRuntime(log, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	block, err := rt.Allocate(ctx, core.Request{Bytes: 64, Tag: "scan"})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = rt.LaunchNamed(ctx, "prefix-sum", 2, []core.Use{{Block: block.ID, Access: core.ReadWrite}},
		func(context.Context) error { return nil })
	fmt.Println(rt, err)
	for _, r := range ring.Snapshot() {
		fmt.Println(r.Event.Op, r.Event.Launch, r.Event.Bytes)
	}
	// Output:
	// logging(fake:0) <nil>
	// allocate  64
	// prepare prefix-sum 64
	// finish prefix-sum 64
}

func ExampleNewRing() {
	ring := logging.NewRing(1024)
	if err := work(ring); err != nil {
		fmt.Println(err)
	}
	for _, r := range ring.Snapshot() {
		fmt.Println(r.Event.Op, r.Event.Tag, r.Event.Requested, r.Event.Err != nil)
	}
	// Output:
	// allocate sort.keys 4096 false
	// allocate join 1073741824 true
	// deallocate sort.keys 4096 false
}

func ExampleNewJSONSink() {
	var file bytes.Buffer
	sink := logging.NewJSONSink(&file, logging.Queue{})
	if err := errors.Join(work(sink), closing(sink)); err != nil {
		fmt.Println(err)
	}
	for line := range strings.Lines(file.String()) {
		var r struct {
			Op, Tag, Kind string
			Requested     uint64
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			fmt.Println(err)
		}
		fmt.Printf("%+v\n", r)
	}
	// Output:
	// {Op:allocate Tag:sort.keys Kind: Requested:4096}
	// {Op:allocate Tag:join Kind:out_of_memory Requested:1073741824}
	// {Op:deallocate Tag:sort.keys Kind: Requested:4096}
}

func ExampleNewCSVSink() {
	var file bytes.Buffer
	sink := logging.NewCSVSink(&file, logging.Queue{})
	if err := errors.Join(work(sink), closing(sink)); err != nil {
		fmt.Println(err)
	}
	for line := range strings.Lines(file.String()) {
		columns := strings.Split(line, ",")
		columns[1] = "-" // the time
		fmt.Print(strings.Join(columns, ","))
	}
	// Output:
	// Thread,-,Action,Pointer,Size,Stream
	// 0,-,allocate,0x10000,4096,3
	// 0,-,allocate failure,0x0,1073741824,0
	// 0,-,free,0x10000,4096,3
}

func ExampleNewSlogSink() {
	shown := map[string]bool{"level": true, "msg": true, "tag": true, "requested": true, "kind": true}
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if !shown[a.Key] {
				return slog.Attr{}
			}
			return a
		},
	}))
	sink := logging.NewSlogSink(logger, logging.Queue{})
	if err := errors.Join(work(sink), closing(sink)); err != nil {
		fmt.Println(err)
	}
	// Output:
	// level=INFO msg="gpu memory allocate" tag=sort.keys requested=4096
	// level=ERROR msg="gpu memory allocate" tag=join requested=1073741824 kind=out_of_memory
	// level=INFO msg="gpu memory deallocate" tag=sort.keys requested=4096
}
