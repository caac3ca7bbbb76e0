package gputest

import (
	"bufio"
	"cmp"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// witnessVariable names the file that cupti/witness.c writes, where that is loaded.
const witnessVariable = "CUPTI_WITNESS"

// witnessed is a kernel as CUPTI tells of it, in nanoseconds of the host's CLOCK_REALTIME since the test began.
type witnessed struct {
	launch      uint64 // the order of the launches
	began, done float64
}

// witnessedKernels are the kernels of a name in the order in which they were launched. Nothing is
// known where the variable is not set.
func witnessedKernels(t *testing.T, name string, since int64) (all []witnessed) {
	t.Helper()
	path := os.Getenv(witnessVariable)
	if path == "" {
		t.Log(witnessVariable + " is not set: not compared with CUPTI")
		return nil
	}
	must(t, os.WriteFile(path+".flush", nil, 0o600))
	for by := time.Now().Add(endBound); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(path + ".flush"); os.IsNotExist(err) {
			break
		} else if time.Now().After(by) {
			t.Fatalf("CUPTI's witness does not answer: is cupti/witness.c loaded?")
		}
	}
	f, err := os.Open(path)
	must(t, err)
	defer func() { _ = f.Close() }()
	var ahead, apart []float64
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var k witnessed
		var stream, cupti, host, between uint64
		var began, done uint64
		var of string
		switch line := lines.Text(); {
		case strings.HasPrefix(line, "dropped "):
			t.Fatal("CUPTI has dropped records")
		case strings.HasPrefix(line, "clock "):
			_, err = fmt.Sscanf(line, "clock %d %d %d", &cupti, &host, &between)
			ahead, apart = append(ahead, float64(int64(cupti-host))), append(apart, float64(between))
		case strings.HasPrefix(line, "kernel "):
			_, err = fmt.Sscanf(line, "kernel %d %d %d %d %s", &k.launch, &stream, &began, &done, &of)
			if k.began, k.done = float64(int64(began)-since), float64(int64(done)-since); of == name {
				all = append(all, k)
			}
		}
		must(t, err)
	}
	must(t, lines.Err())
	t.Logf("CUPTI's clock less CLOCK_REALTIME, ns: %v, readings %v apart", spread(ahead), spread(apart))
	offset := float64(spread(ahead)[2])
	for i := range all {
		all[i].began, all[i].done = all[i].began-offset, all[i].done-offset
	}
	slices.SortFunc(all, func(x, y witnessed) int { return cmp.Compare(x.launch, y.launch) })
	return all
}

// The goals: how far a span may be from CUPTI's record, in nanoseconds, or as a part of the kernel's duration if that is more.
const (
	endGoal, beginGoal = 1_500, 5_000
	goalPart           = 0.02
)

// apart logs how far from each other two records of launches are, each a begin and an end.
func apart(t *testing.T, what string, all []clockedLaunch, of func(*clockedLaunch) (began, done, otherBegan, otherDone float64)) {
	t.Helper()
	var begins, ends []float64
	var beginsNear, endsNear int
	for i := range all {
		began, done, otherBegan, otherDone := of(&all[i])
		begins, ends = append(begins, began-otherBegan), append(ends, done-otherDone)
		within := goalPart * (otherDone - otherBegan)
		if math.Abs(began-otherBegan) <= max(beginGoal, within) {
			beginsNear++
		}
		if math.Abs(done-otherDone) <= max(endGoal, within) {
			endsNear++
		}
	}
	n := float64(max(len(all), 1))
	t.Logf("%s, ns: ends %v, %.2f %% within the goal; begins %v, %.2f %%", what, spread(ends), 100*float64(endsNear)/n,
		spread(begins), 100*float64(beginsNear)/n)
}

// againstCUPTI logs how far the spans are from CUPTI's record, and CUPTI from the kernels' own reading of the device's timer, whose
// offset from the host's clock is taken to be the median.
func againstCUPTI(t *testing.T, all []clockedLaunch) {
	t.Helper()
	apart(t, "span less CUPTI", all, func(l *clockedLaunch) (float64, float64, float64, float64) {
		return l.spanBegan, l.spanDone, l.began, l.done
	})
	var ahead []float64
	for i := range all {
		ahead = append(ahead, all[i].done-all[i].kernelDone)
	}
	slices.Sort(ahead)
	offset := ahead[len(ahead)/2]
	apart(t, "CUPTI less kernel", all, func(l *clockedLaunch) (float64, float64, float64, float64) {
		return l.began, l.done, l.kernelBegan + offset, l.kernelDone + offset
	})
}
