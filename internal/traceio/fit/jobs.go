package fit

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
	"time"

	"github.com/fencepost-gpu/fencepost/internal/line"
	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
)

// Jobs is what an admission by peaks makes of the recorded jobs on the machine: each comes when it came, takes as long as
// it took once it is in, and reserves its peak until it ends, in the order of their coming. What was live of no job is
// set aside. Sizes are bytes, times nanoseconds.
type Jobs struct {
	Count int `json:"count"`
	// AtOnce is how many may be in at once, 0 for any number; Most is how many were.
	AtOnce int `json:"at_once,omitempty"`
	Most   int `json:"most_at_once"`
	// Others is the most that was live of no job, Reserved the most that jobs had reserved at once.
	Others   uint64 `json:"others_bytes"`
	Reserved uint64 `json:"peak_reserved_bytes"`
	// Refused are those that need more than there ever is. Waited is how many waited, and the waits are of all that got in.
	Refused int           `json:"refused"`
	Waited  int           `json:"waited"`
	WaitP50 time.Duration `json:"wait_p50_ns"`
	WaitP99 time.Duration `json:"wait_p99_ns"`
	WaitMax time.Duration `json:"wait_max_ns"`
	// NeedsForAny is the smallest memory on which none is refused, NeedsForAll that on which none waits for memory.
	// Both are exact, but for what fragmentation takes.
	NeedsForAny uint64 `json:"needs_for_any_bytes"`
	NeedsForAll uint64 `json:"needs_for_all_bytes"`
}

// jobs are those of a trace, in the order of their coming.
type jobs struct {
	list []alloctrace.Job
	// owner is the job of each row, or -1.
	owner []int
	// others is the most that is live of no job, and largest the most that one needs.
	others, largest uint64
}

// jobsOf finds out whose the rows are. A block is a job's that allocated it on its first stream while it ran. What has
// the name of a job and was allocated elsewhere, as on a fork's stream, is in a job's peak too, but stays at its time.
func jobsOf(list []alloctrace.Job, rows []alloctrace.Row) (*jobs, error) {
	if len(list) == 0 {
		return nil, nil
	}
	j := &jobs{list: slices.Clone(list), owner: make([]int, len(rows))}
	slices.SortStableFunc(j.list, func(a, b alloctrace.Job) int { return cmp.Compare(a.Start, b.Start) })
	streams, names, total := map[uint64][]int{}, map[string]bool{}, time.Duration(0)
	for i, job := range j.list {
		streams[job.Stream] = append(streams[job.Stream], i)
		names[job.Name] = true
		j.largest = max(j.largest, job.Bytes)
		if total += job.Duration; total > math.MaxInt64/4 {
			return nil, invalid("history", "its jobs take more than a lifetime")
		}
	}
	blocks := map[alloctrace.Key]int{}
	for i := range rows {
		row := &rows[i]
		j.owner[i] = -1
		if of, ok := blocks[row.Key()]; row.Action == alloctrace.Free && ok {
			j.owner[i] = of
			delete(blocks, row.Key())
		} else if row.Action == alloctrace.Allocate {
			if of := slices.IndexFunc(streams[row.Stream], func(k int) bool {
				return j.list[k].Start <= row.Time && row.Time <= j.list[k].Start+j.list[k].Duration
			}); of >= 0 {
				j.owner[i] = streams[row.Stream][of]
				blocks[row.Key()] = j.owner[i]
			}
		}
	}
	j.others, _ = peak(rows, func(i int) bool { return j.owner[i] < 0 && !names[rows[i].Tag] })
	return j, nil
}

// least is a memory below which a job is refused.
func (j *jobs) least() uint64 { return j.others + j.largest }

// admitted is when the jobs came in, -1 for one that was refused.
type admitted struct {
	at       []time.Duration
	refused  int
	most     int
	reserved uint64
}

// admit lets the jobs into so much memory, atOnce at a time, or any number if that is 0.
func (j *jobs) admit(memory uint64, atOnce int) (a admitted) {
	if j == nil {
		return a
	}
	a.at = make([]time.Duration, len(j.list))
	ledger := line.NewLedger(memory-min(memory, j.others), 0)
	var (
		now     time.Duration
		ends    ending
		next    int // of those who come
		waiting []int
		places  []int // the job of each place of the ledger
		inside  int   // with those who wait for memory
	)
	for next < len(j.list) || len(ends) > 0 {
		if len(ends) > 0 && (next == len(j.list) || ends[0].at <= j.list[next].Start) {
			end := heap.Pop(&ends).(end) //nolint:forcetypeassert // nothing else is in it
			now = end.at
			inside--
			ledger.Leave(&line.Grant{Reserved: end.bytes})
		} else {
			now = j.list[next].Start
			waiting = append(waiting, next)
			next++
		}
		for {
			for _, d := range ledger.Told {
				job := places[d.Place]
				if d.Bytes == 0 {
					a.at[job] = -1
					a.refused++
					inside--
					continue
				}
				a.at[job] = now
				heap.Push(&ends, end{now + j.list[job].Duration - j.list[job].Waited, d.Bytes})
			}
			ledger.Told = ledger.Told[:0]
			a.most, a.reserved = max(a.most, len(ends)), max(a.reserved, ledger.Given())
			if len(waiting) == 0 || atOnce > 0 && inside >= atOnce {
				break
			}
			job := waiting[0]
			waiting = waiting[1:]
			inside++
			bytes := max(1, j.list[job].Bytes)
			place := ledger.Ask(bytes, bytes)
			if place == len(places) {
				places = append(places, 0)
			}
			places[place] = job
		}
	}
	return a
}

// move is the rows with what jobs did moved to when they came in, without those of refused jobs.
func (j *jobs) move(rows []alloctrace.Row, a admitted) []alloctrace.Row {
	moved := make([]alloctrace.Row, 0, len(rows))
	for i, row := range rows {
		if of := j.owner[i]; of >= 0 {
			if a.at[of] < 0 {
				continue
			}
			row.Time += a.at[of] - j.list[of].Start - j.list[of].Waited
		}
		moved = append(moved, row)
	}
	slices.SortStableFunc(moved, func(a, b alloctrace.Row) int { return cmp.Compare(a.Time, b.Time) })
	return moved
}

// report says what an admission came to.
func (j *jobs) report(a admitted, atOnce int) *Jobs {
	if j == nil {
		return nil
	}
	r := &Jobs{Count: len(j.list), AtOnce: atOnce, Most: a.most, Others: j.others, Reserved: a.reserved, Refused: a.refused, NeedsForAny: j.least(),
		NeedsForAll: j.others + j.admit(math.MaxUint64, atOnce).reserved}
	var waits []time.Duration
	for i, at := range a.at {
		if at >= 0 {
			wait := at - j.list[i].Start
			waits = append(waits, wait)
			if wait > 0 {
				r.Waited++
			}
		}
	}
	if slices.Sort(waits); len(waits) > 0 {
		last := float64(len(waits) - 1)
		r.WaitP50, r.WaitP99, r.WaitMax = waits[int(.5*last)], waits[int(math.Ceil(.99*last))], waits[len(waits)-1]
	}
	return r
}

// end is when a job gives its bytes back.
type end struct {
	at    time.Duration
	bytes uint64
}

// ending is a heap of ends, the next first.
type ending []end

// Len is the number of ends.
func (e ending) Len() int { return len(e) }

// Less orders them by time.
func (e ending) Less(a, b int) bool { return e[a].at < e[b].at }

// Swap exchanges two.
func (e ending) Swap(a, b int) { e[a], e[b] = e[b], e[a] }

// Push adds one at the end.
func (e *ending) Push(x any) { *e = append(*e, x.(end)) } //nolint:forcetypeassert // heap's contract

// Pop takes the last.
func (e *ending) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}
