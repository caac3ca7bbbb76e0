package fit

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fencepost-gpu/fencepost/internal/size"
)

// The picture's sizes, in its own units.
const (
	pictureWidth, pictureHeight = 960, 360
	left, right, top, bottom    = 90, 20, 60, 40
)

// SVG is the course as a picture: what is live, what is held, the machine's memory and what is needed.
func (r *Report) SVG() []byte {
	most := max(1, r.Memory, r.Needs, slices.Max(r.course.live[:]), slices.Max(r.course.held[:]))
	at := func(bytes uint64) float64 {
		return pictureHeight - bottom - float64(bytes)/float64(most)*(pictureHeight-top-bottom)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">
<rect width="100%%" height="100%%" fill="#fff"/><text x="%d" y="22" font-size="15">%s</text>
`, pictureWidth, pictureHeight, left, r.Verdict())
	line := func(values *[columns]uint64, more string) {
		fmt.Fprintf(&b, `<path %s d="M%d %.1f`, more, left, at(0))
		for i, v := range values {
			x := left + float64(i)/columns*(pictureWidth-left-right)
			fmt.Fprintf(&b, "L%.1f %.1fH%.1f", x, at(v), x+float64(pictureWidth-left-right)/columns)
		}
		fmt.Fprintf(&b, "V%.1fZ\"/>\n", at(0))
	}
	line(&r.course.held, `fill="#c6dbef"`)
	line(&r.course.live, `fill="#3182bd"`)
	level := func(bytes uint64, color, what string) {
		fmt.Fprintf(&b, `<path stroke="%s" d="M%d %.1fH%d"/><text x="%d" y="%.1f" text-anchor="end" fill="%[1]s">%[7]s</text>
`, color, left, at(bytes), pictureWidth-right, left-6, at(bytes)+4, what)
	}
	level(0, "#636363", "0")
	level(r.Needs, "#31a354", Size(r.Needs))
	legend := []string{`<tspan fill="#3182bd">live, as asked for</tspan>`, `<tspan fill="#6baed6">held of the device</tspan>`, `<tspan fill="#31a354">needed</tspan>`}
	if r.Memory > 0 {
		level(r.Memory, "#de2d26", Size(r.Memory))
		legend = append(legend, `<tspan fill="#de2d26">there is</tspan>`)
	}
	fmt.Fprintf(&b, `<text x="%d" y="42">%s</text>
<text x="%[1]d" y="%[3]d">0s</text><text x="%[4]d" y="%[3]d" text-anchor="end">%[5]v</text></svg>
`, left, strings.Join(legend, "  ·  "), pictureHeight-bottom+18, pictureWidth-right, (r.course.ends - r.course.begins).Round(time.Millisecond))
	return []byte(b.String())
}

// Bars is what is live, in n characters.
func (r *Report) Bars(n int) string {
	bars, most := []rune("▁▂▃▄▅▆▇█"), max(1, slices.Max(r.course.live[:]), r.Memory)
	var b strings.Builder
	for i := range n {
		live := slices.Max(r.course.live[i*columns/n : (i+1)*columns/n])
		b.WriteRune(bars[int(float64(live)/float64(most)*float64(len(bars)-1))])
	}
	return b.String()
}

// Verdict is the answer in a line.
func (r *Report) Verdict() string {
	needs := r.Interval()
	switch { // what the recording lacks
	case r.Uncertain:
		needs = "about " + needs
	case r.LowerBounds:
		needs = "at least " + needs
	}
	if r.Memory == 0 {
		return "needs " + needs
	}
	percent := 100 * float64(r.Margin) / float64(r.Memory)
	switch {
	case r.Fits:
		return fmt.Sprintf("fits: needs %s of %s, which leaves %s (%.1f %%)", needs, Size(r.Memory), Size(uint64(r.Margin)),
			percent)
	case r.Memory >= r.NeedsLeast:
		return fmt.Sprintf("may not fit: needs %s of %s, which is %s (%.1f %%) too little to be sure", needs, Size(r.Memory),
			Size(uint64(-r.Margin)), -percent)
	}
	return fmt.Sprintf("does not fit: needs %s of %s, which is %s (%.1f %%) too little", needs, Size(r.Memory),
		Size(uint64(max(0, -r.Margin))), -percent)
}

// Interval is what is needed, for people.
func (r *Report) Interval() string {
	if least, most := Size(r.NeedsLeast), Size(r.Needs); least != most {
		return least + " to " + most
	}
	return Size(r.Needs)
}

// Size prints a number of bytes rounded up, so that a limit of what it prints is enough: to a
// thousandth of a GiB, in which a device's granule shows, and below a GiB to a tenth of the unit.
func Size(n uint64) string {
	if n >= 1<<30 {
		return fmt.Sprintf("%.3f GiB", math.Ceil(float64(n)/(1<<30)*1000)/1000)
	}
	for _, unit := range []uint64{1 << 20, 1 << 10} {
		if n >= unit {
			tenths := (10*n + unit - 1) / unit
			return size.Of((tenths*unit + 9) / 10)
		}
	}
	return size.Of(n)
}
