package lint

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// hostile is beside a program of a document: an exporter that takes a second for a batch, and a job
// that never returns.
const hostile = `package main

import (
	"context"
	"os"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/fencepost-gpu/fencepost/telemetry/spanfile"
)

type slow struct{ *spanfile.Exporter }

func (s slow) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	time.Sleep(time.Second)
	return s.Exporter.ExportSpans(ctx, spans)
}

func slowly(sdktrace.SpanExporter, error) (sdktrace.SpanExporter, error) {
	return slow{spanfile.New(os.Stdout)}, nil
}

func hang() {
	_ = os.WriteFile("hangs", nil, 0o600)
	select {}
}
`

// service is the program around a block that says how a service opens its runtime and ends.
const service = `package main

import (
	"context"
	"log"
	"os"
	"os/signal"

	"github.com/fencepost-gpu/fencepost"
)

func main() {
	ctx, _ := signal.NotifyContext(context.Background(), os.Interrupt)
	rt, _, end, err := open(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	job := func(then func()) {
		_ = rt.Do(context.Background(), "add", func(j *fencepost.Job) error {
			_, err := fencepost.Upload(j, []uint32{1, 2, 3})
			then()
			return err
		})
	}
	for range 20 {
		job(func() {})
	}
	go job(hang)
	<-ctx.Done()
	log.Print(end())
}
`

// The end that a document shows is one with which a service ends, and exports each span that had
// ended, while a job never returns and the exporter is slow. It takes 10 seconds and more, because
// the job uses up the time of other steps.
func TestTheEndsInDocumentsLoseNoSpans(t *testing.T) {
	const requests = 20
	for document, end := range map[string]struct {
		change []string
		beside map[string]string
		steps  int
		begin  func(at string)
	}{
		"docs/start.md": {change: []string{"spanfile.New(os.Stdout)", "slow{spanfile.New(os.Stdout)}",
			"n := values.Len() + *beyond", "if in.V == 7 {\nhang()\n}\nn := values.Len() + *beyond",
			"r.Context(), time.Second", "r.Context(), time.Hour"}, steps: 3, begin: func(at string) {
			for range requests {
				post(t, at, `{"values":[1,2,3],"v":10}`)
			}
			go func() {
				answer, err := http.Post("http://"+at+"/add", "application/json", strings.NewReader(`{"values":[1],"v":7}`))
				if err == nil { // the job hangs, so there may be none
					_ = answer.Body.Close()
				}
			}()
		}},
		"docs/guide.md": {change: []string{"package service", "package main", "otlptracehttp.New(ctx)",
			"slowly(otlptracehttp.New(ctx))"},
			beside: map[string]string{"service.go": service}, steps: 2, begin: func(string) {}},
	} {
		t.Run(document, func(t *testing.T) {
			t.Parallel()
			blocks := Document{document, read(t, document)}.Blocks()
			b := blocks[slices.IndexFunc(blocks, func(b Block) bool {
				return b.IsProgram() && strings.Contains(b.Code, "Shutdown")
			})]
			for i := 0; i < len(end.change); i += 2 {
				if !strings.Contains(b.Code, end.change[i]) {
					t.Fatalf("%s has no %s", document, end.change[i])
				}
			}
			at := freeAddress(t)
			b.Code = strings.NewReplacer(append(end.change, "127.0.0.1:8080", at, "127.0.0.1:9464",
				freeAddress(t))...).Replace(b.Code)
			b.Beside = map[string]string{"hostile.go": hostile}
			maps.Copy(b.Beside, end.beside)
			folder := t.TempDir()
			program := must.Get(b.Program(t.Context(), root(t), folder))(t)
			var out, errs bytes.Buffer
			program.Stdout, program.Stderr = &out, &errs
			must.Do(t, program.Start())
			ended := make(chan error, 1)
			go func() { ended <- program.Wait() }()
			end.begin(at)
			untilThere(t, filepath.Join(folder, "hangs"))
			must.Do(t, program.Process.Signal(os.Interrupt))
			limit := time.Duration(end.steps)*5*time.Second + 20*time.Second
			select {
			case err := <-ended:
				if err != nil {
					t.Fatalf("it ended with %v\n%s", err, errs.String())
				}
			case <-time.After(limit):
				must.Do(t, program.Process.Kill())
				t.Fatalf("it does not end within %v: %v\n%s", limit, <-ended, errs.String())
			}
			perTrace(t, out.String(), requests)
			if !strings.Contains(errs.String(), "still leased") {
				t.Errorf("the job that never returned is not told:\n%s", errs.String())
			}
		})
	}
}

// perTrace asks that the lines have all spans of each request, those of the job that hangs, and its
// leak.
func perTrace(t *testing.T, lines string, requests int) {
	t.Helper()
	traces, leaks := map[string][]string{}, 0
	for line := range strings.Lines(lines) {
		var s struct {
			Name    string
			TraceID string `json:"trace_id"`
		}
		must.Do(t, json.Unmarshal([]byte(line), &s))
		traces[s.TraceID] = append(traces[s.TraceID], s.Name)
		if s.Name == "gpumem.finding leak" {
			leaks++
		}
	}
	whole, hangs := map[int]int{}, 0
	for _, names := range traces {
		switch {
		case slices.Contains(names, "gpumem.job add"):
			whole[len(names)]++
		case slices.Contains(names, "gpumem.alloc add"):
			hangs++
		}
	}
	if len(whole) != 1 || slices.Collect(maps.Values(whole))[0] != requests || hangs != 1 || leaks == 0 {
		t.Errorf("%d requests have so many spans: so often: %v; %d of jobs that hang have any; %d leaks are told", requests,
			whole, hangs, leaks)
	}
}

// post sends the request of the page, when the service answers.
func post(t *testing.T, at, body string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		answer, err := http.Post("http://"+at+"/add", "application/json", strings.NewReader(body))
		if err == nil {
			must.Do(t, answer.Body.Close())
			if answer.StatusCode != http.StatusOK {
				t.Errorf("the service answers %s", answer.Status)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the service does not answer: %v", err)
		}
	}
}

// untilThere waits for a file.
func untilThere(t *testing.T, path string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s never came", path)
		}
	}
}
