package lint

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// A reader of the first hour sees the spans that the page shows, as many as it says.
func TestTheFirstHourShowsTheSpansOfItsProgram(t *testing.T) {
	page := read(t, "docs/start.md")
	said := regexp.MustCompile("(?s)the request's (\\d+) spans.*?```spans\n(.*?)```").FindStringSubmatch(page)
	if said == nil {
		t.Fatal("docs/start.md shows no spans")
	}
	blocks := Document{"docs/start.md", page}.Blocks()
	service := blocks[slices.IndexFunc(blocks, Block.IsProgram)]

	type span struct {
		Name   string
		ID     string `json:"span_id"`
		Parent string `json:"parent_id"`
	}
	spans := map[string]span{}
	for line := range strings.Lines(printedBy(t, service)) {
		var s span
		must.Do(t, json.Unmarshal([]byte(line), &s))
		spans[s.ID] = s
	}
	var made []string // each span behind those that it is below
	for _, s := range spans {
		path := s.Name
		for up, ok := spans[s.Parent]; ok; up, ok = spans[up.Parent] {
			path = up.Name + " > " + path
		}
		made = append(made, path)
	}
	slices.Sort(made)
	if diff := cmp.Diff(paths(said[2]), made); diff != "" {
		t.Errorf("docs/start.md shows (-) and the program makes (+)\n%s", diff)
	}
	if said[1] != strconv.Itoa(len(made)) {
		t.Errorf("docs/start.md says %s spans, and the program makes %d", said[1], len(made))
	}
}

// paths are the lines of an indented tree, each behind those that it is below, in order.
func paths(tree string) []string {
	var all, above []string
	var indents []int
	for line := range strings.Lines(tree) {
		name := strings.TrimSpace(line)
		if name == "" {
			continue
		}
		indent := strings.Index(line, name)
		for len(indents) > 0 && indents[len(indents)-1] >= indent {
			indents, above = indents[:len(indents)-1], above[:len(above)-1]
		}
		indents, above = append(indents, indent), append(above, name)
		all = append(all, strings.Join(above, " > "))
	}
	slices.Sort(all)
	return all
}

// printedBy runs the service on free ports and without its short deadline, sends it the request of
// the page, ends it, and returns its standard output.
func printedBy(t *testing.T, service Block) string {
	t.Helper()
	at := freeAddress(t)
	change := strings.NewReplacer("127.0.0.1:8080", at, "127.0.0.1:9464", freeAddress(t), "r.Context(), time.Second",
		"r.Context(), 20*time.Second")
	service.Code = change.Replace(service.Code)
	program := must.Get(service.Program(t.Context(), root(t), t.TempDir()))(t)
	var out, errs bytes.Buffer
	program.Stdout, program.Stderr = &out, &errs
	must.Do(t, program.Start())
	ended := make(chan error, 1)
	go func() { ended <- program.Wait() }()

	post(t, at, `{"values":[1,2,3],"v":10}`)
	must.Do(t, program.Process.Signal(os.Interrupt))
	select {
	case err := <-ended:
		if err != nil {
			t.Fatalf("the service ended with %v\n%s", err, errs.String())
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the service does not end")
	}
	return out.String()
}

// freeAddress is one of this machine's that no process listened on a moment ago.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener := must.Get((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	must.Do(t, listener.Close())
	return listener.Addr().String()
}
