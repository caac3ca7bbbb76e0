package profile

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/pprof/profile"
)

// Handler serves a profile of sources as net/http/pprof serves Go's heap:
// gzipped protocol buffers; with debug=1 or more, text; with seconds=N, what
// changed within N seconds. A request with seconds takes that long and ends
// with its client. Only GET and HEAD are answered. It is safe for concurrent
// use.
//
// It changes nothing, but it shows the program's functions and tags: who may
// reach it is the mount's to say.
func Handler(sources ...Source) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serve(w, r, sources) })
}

// maxSeconds keeps a request from holding a profile for longer than a day.
const maxSeconds = 24 * 60 * 60

func serve(w http.ResponseWriter, r *http.Request, sources []Source) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "use GET", http.StatusMethodNotAllowed)
		return
	}
	debug, _ := strconv.Atoi(r.FormValue("debug"))
	seconds, err := secondsOf(r, debug)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	name, take := "gpumem", func() (*profile.Profile, error) { return Take(sources...) }
	if seconds > 0 {
		name, take = "gpumem-delta", func() (*profile.Profile, error) { return delta(r.Context(), sources, seconds) }
	}
	p, err := take()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if debug > 0 {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	} else {
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", name))
	}
	if r.Method == http.MethodHead {
		return
	}
	_ = write(w, p, debug) // the client went away
}

// secondsOf is how long a profile of changes is to take, zero if it is not of
// changes.
func secondsOf(r *http.Request, debug int) (time.Duration, error) {
	text := r.FormValue("seconds")
	if text == "" {
		return 0, nil
	}
	seconds, err := strconv.Atoi(text)
	switch {
	case err != nil || seconds <= 0 || seconds > maxSeconds:
		return 0, fmt.Errorf("invalid value for seconds: say 1 to %d", maxSeconds)
	case debug != 0:
		return 0, errors.New("seconds and debug params are incompatible")
	}
	if server, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok && server.WriteTimeout != 0 && float64(seconds) >= server.WriteTimeout.Seconds() {
		return 0, errors.New("profile duration exceeds server's WriteTimeout")
	}
	return time.Duration(seconds) * time.Second, nil
}

// delta is the profile at the end of a time less that at its beginning. What
// was freed meanwhile is negative.
func delta(ctx context.Context, sources []Source, d time.Duration) (*profile.Profile, error) {
	before, err := Take(sources...)
	if err != nil {
		return nil, err
	}
	over := time.NewTimer(d)
	defer over.Stop()
	select {
	case <-over.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	after, err := Take(sources...)
	if err != nil {
		return nil, err
	}
	before.Scale(-1)
	p, err := profile.Merge([]*profile.Profile{before, after})
	if err != nil {
		return nil, err
	}
	p.Comments = after.Comments
	p.TimeNanos, p.DurationNanos = after.TimeNanos, after.TimeNanos-before.TimeNanos
	return p, nil
}

// Write takes a profile and writes it to w: as pprof's protocol buffers,
// gzipped, or as text if debug is 1 or more.
func Write(w io.Writer, debug int, sources ...Source) error {
	p, err := Take(sources...)
	if err != nil {
		return err
	}
	return write(w, p, debug)
}

func write(w io.Writer, p *profile.Profile, debug int) error {
	if debug > 0 {
		return writeText(w, p)
	}
	return p.Write(w)
}

// writeText writes p for people, the largest in use first.
func writeText(w io.Writer, p *profile.Profile) error {
	out := bufio.NewWriter(w)
	var sum [len(sampleTypes)]int64
	for _, s := range p.Sample {
		for i, v := range s.Value {
			sum[i] += v
		}
	}
	fmt.Fprintf(out, "gpumem profile: %d bytes in %d blocks in use, %d bytes in %d blocks ever allocated\n", sum[3], sum[2], sum[1], sum[0])
	for _, comment := range p.Comments {
		fmt.Fprintln(out, comment)
	}
	slices.SortStableFunc(p.Sample, bySize)
	for _, s := range p.Sample {
		fmt.Fprintf(out, "\n%d bytes in %d [%d bytes in %d] @ %s\n", s.Value[3], s.Value[2], s.Value[1], s.Value[0], labelText(s))
		for _, l := range s.Location {
			line := l.Line[0] // it has no other
			fmt.Fprintf(out, "#\t%s", line.Function.Name)
			if line.Function.Filename != "" {
				fmt.Fprintf(out, "\t%s:%d", line.Function.Filename, line.Line)
			}
			fmt.Fprintln(out)
		}
	}
	return out.Flush()
}

// labelText is the labels as "device=0 tag=sort", in their order.
func labelText(s *profile.Sample) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(s.Label)) {
		parts = append(parts, name+"="+strings.Join(s.Label[name], ","))
	}
	return strings.Join(parts, " ")
}
