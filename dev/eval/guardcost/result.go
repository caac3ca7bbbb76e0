package guardcost

import (
	"fmt"
	"io"
	"time"

	"github.com/aclements/go-moremath/stats"
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
	// confidence interval, which fewer than six pairs do not bound.
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
	var ratios, off, on, host stats.Sample
	for i := range with {
		ratios.Xs = append(ratios.Xs, float64(with[i].total)/float64(without[i].total))
		on.Xs, off.Xs = append(on.Xs, float64(with[i].total)), append(off.Xs, float64(without[i].total))
		host.Xs = append(host.Xs, float64(without[i].host)/float64(without[i].total))
	}
	ratios.Sort()
	middle, low, high := stats.QuantileCI(len(with), .5, .95).SampleCI(ratios)
	return Result{Pairs: len(with), Off: time.Duration(off.Quantile(.5)), On: time.Duration(on.Quantile(.5)), Host: host.Quantile(.5),
		Ratio: middle, Low: low, High: high, Min: ratios.Quantile(0), Q1: ratios.Quantile(.25), Q3: ratios.Quantile(.75), Max: ratios.Quantile(1)}
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
