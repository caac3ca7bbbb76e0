package profile

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/google/pprof/profile"
)

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
			for _, line := range l.Line {
				writeFrame(out, line)
			}
		}
	}
	return out.Flush()
}

func writeFrame(out io.Writer, l profile.Line) {
	if l.Function.Filename == "" {
		fmt.Fprintf(out, "#\t%s\n", l.Function.Name)
		return
	}
	fmt.Fprintf(out, "#\t%s\t%s:%d\n", l.Function.Name, l.Function.Filename, l.Line)
}

// labelText is the labels as "device=0 tag=sort", in their order.
func labelText(s *profile.Sample) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(s.Label)) {
		parts = append(parts, name+"="+strings.Join(s.Label[name], ","))
	}
	return strings.Join(parts, " ")
}
