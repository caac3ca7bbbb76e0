package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"go.opentelemetry.io/otel"

	"github.com/fencepost-gpu/fencepost/internal/environ"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "stage:", err)
		os.Exit(1)
	}
}

// run serves until in ends.
func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet("stage", flag.ContinueOnError)
	folder := flags.String("folder", "", "where scenes may write; required to play")
	only := flags.String("scenes", "", "play these alone, separated by commas")
	planOnly := flags.Bool("plan", false, "print the plan and play nothing")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *planOnly {
		return json.NewEncoder(out).Encode(newPlan())
	}
	if *folder == "" {
		return errors.New("-folder: name a folder that scenes may write to")
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {})) // scenes fail their exporters
	chosen, err := choose(*only)
	if err != nil {
		return err
	}
	s, err := raise(ctx, *folder, chosen)
	if err != nil {
		return err
	}
	defer s.close(ctx)
	server := httptest.NewServer(s.handler())
	defer server.Close()
	fmt.Fprintln(out, server.Listener.Addr())
	_, _ = io.Copy(io.Discard, in)
	return nil
}

// stage is all scenes.
type stage struct{ players []*player }

// choose is the scenes that are named, all if none is.
func choose(only string) ([]scene, error) {
	if only == "" {
		return scenes(), nil
	}
	var chosen []scene
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(scenes(), func(s scene) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("-scenes: there is no scene %q; -plan lists them", name)
		}
		chosen = append(chosen, scenes()[i])
	}
	return chosen, nil
}

func raise(ctx context.Context, folder string, scenes []scene) (*stage, error) {
	for _, v := range environ.Variables() {
		_ = os.Unsetenv(v.Name) // or every scene would be another
	}
	s := &stage{}
	for _, scene := range scenes {
		p, err := open(ctx, scene, filepath.Join(folder, scene.name))
		if err != nil {
			s.close(ctx)
			return nil, err
		}
		s.players = append(s.players, p)
	}
	return s, nil
}

func (s *stage) handler() http.Handler {
	mux := http.NewServeMux()
	for _, p := range s.players {
		mux.Handle("GET /metrics/"+p.scene.name, p.metrics)
	}
	mux.HandleFunc("POST /act", func(w http.ResponseWriter, _ *http.Request) {
		if err := s.act(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	return mux
}

// act plays every scene's action.
func (s *stage) act() error {
	errs := make([]error, len(s.players))
	var all sync.WaitGroup
	for i, p := range s.players {
		all.Go(func() { errs[i] = p.act() })
	}
	all.Wait()
	return errors.Join(errs...)
}

func (s *stage) close(ctx context.Context) {
	var all sync.WaitGroup
	for _, p := range s.players {
		all.Go(func() { p.close(ctx) })
	}
	all.Wait()
}
