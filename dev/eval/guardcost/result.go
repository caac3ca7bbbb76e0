package guardcost

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"
)

// Result is what one tier cost one work. Ratios are to the guard switched
// off, from pairs in one run.
type Result struct {
	Work  string
	Guard string
	Pairs int
	// Units is how many units of work a side had.
	Units int
	// Off and On are the medians of a side, guard off and on.
	Off time.Duration
	On  time.Duration
	// Host is the median share of a side, guard off, after which the host
	// had enqueued everything. Far below 1 the device is the limit; 1 can
	// also mean that the driver's queue was full.
	Host float64
	// Ratio is the median of On/Off over the pairs, Low to High its 95 %
	// confidence interval by bootstrap.
	Ratio float64
	Low   float64
	High  float64
	// Min, Q1, Q3 and Max are of the pairs' ratios.
	Min float64
	Q1  float64
	Q3  float64
	Max float64
	// Guarded counts blocks guarded on the device in all pairs, Verified the
	// comparisons that the device did, Unchecked those left out.
	Guarded   uint64
	Verified  uint64
	Unchecked uint64
}

// summarise needs as many of one as of the other, at least one.
func summarise(with, without []side) Result {
	var ratios, off, on, host []float64
	for i := range with {
		ratios = append(ratios, float64(with[i].total)/float64(without[i].total))
		on, off = append(on, float64(with[i].total)), append(off, float64(without[i].total))
		host = append(host, float64(without[i].host)/float64(without[i].total))
	}
	slices.Sort(ratios)
	low, high := interval(ratios)
	return Result{Pairs: len(with), Off: time.Duration(median(off)), On: time.Duration(median(on)), Host: median(host),
		Ratio: quantile(ratios, .5), Low: low, High: high,
		Min: ratios[0], Q1: quantile(ratios, .25), Q3: quantile(ratios, .75), Max: ratios[len(ratios)-1]}
}

// quantile interpolates between the values around it; sorted must be.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	i := min(int(at), len(sorted)-1)
	j := min(i+1, len(sorted)-1)
	return sorted[i] + (at-float64(i))*(sorted[j]-sorted[i])
}

func median(values []float64) float64 {
	return quantile(slices.Sorted(slices.Values(values)), .5)
}

// resamples is how often the bootstrap draws the pairs anew.
const resamples = 2000

// interval is the 95 % confidence interval of the median. The draws are the
// same each time, so that the same measurements give the same figure.
func interval(values []float64) (low, high float64) {
	rng := rand.New(rand.NewPCG(1, 2))
	medians, drawn := make([]float64, resamples), make([]float64, len(values))
	for i := range medians {
		for j := range drawn {
			drawn[j] = values[rng.IntN(len(values))]
		}
		slices.Sort(drawn)
		medians[i] = quantile(drawn, .5)
	}
	slices.Sort(medians)
	return quantile(medians, .025), quantile(medians, .975)
}

// Print writes the results as a table that explains itself.
func Print(out io.Writer, device string, results []Result) error {
	_, err := fmt.Fprintf(out, `What the guard costs on %s: each figure is a ratio to the same work with the guard off, in one run.
ratio: median of the pairs; 95%%: its confidence interval; off: one side with the guard off; host: when the host had enqueued all of it.
%-34s %-12s %7s %15s %7s %7s %7s %7s %6s %9s %5s %9s %9s
`, device, "work", "guard", "ratio", "95%", "min", "q1", "q3", "max", "pairs", "off", "host", "guarded", "unchecked")
	if err != nil {
		return err
	}
	for _, r := range results {
		_, err := fmt.Fprintf(out, "%-34s %-12s %7.4f %7.4f-%7.4f %7.4f %7.4f %7.4f %7.4f %6d %7.1fms %4.0f%% %9d %9d\n",
			r.Work, r.Guard, r.Ratio, r.Low, r.High, r.Min, r.Q1, r.Q3, r.Max, r.Pairs, float64(r.Off)/1e6, 100*r.Host, r.Guarded, r.Unchecked)
		if err != nil {
			return err
		}
	}
	return nil
}
