package logging

import (
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/listeners"
	"github.com/fencepost-gpu/fencepost/internal/path"
)

// layerName is what the records of this layer have as Layer.
const layerName = "logging"

// Level says which operations are logged.
type Level uint8

// The levels.
const (
	// Operations logs allocate, deallocate, reserve, release_claim, reap,
	// drain and refusals. It is the default.
	Operations Level = iota
	// Uses also logs prepare, finish, abort and record, which are several for
	// each launch, the release of every block, and what the device did of the launches that are timed.
	Uses
)

// opSet is a set of operations, a bit for each.
type opSet uint32

func setOf(ops ...oplog.Op) opSet {
	var s opSet
	for _, op := range ops {
		s |= 1 << op
	}
	return s
}

func (s opSet) has(op oplog.Op) bool { return s&(1<<op) != 0 }

// launchOps are the operations whose records describe a launch.
var launchOps = setOf(oplog.OpPrepare, oplog.OpFinish, oplog.OpAbort, oplog.OpRecord)

// operations are what the level of that name logs.
var operations = setOf(oplog.OpAllocate, oplog.OpDeallocate, oplog.OpReserve, oplog.OpReleaseClaim, oplog.OpReap, oplog.OpDrain, oplog.OpRefusal, oplog.OpJob)

// levels are what is known of each, in their order.
var levels = [...]struct {
	name string
	ops  opSet
}{{"operations", operations}, {"uses", operations | launchOps | setOf(oplog.OpRelease, oplog.OpDevice)}}

// ops returns what the level logs, nothing for an unknown level.
func (l Level) ops() opSet {
	if int(l) < len(levels) {
		return levels[l].ops
	}
	return 0
}

// String returns "operations" or "uses".
func (l Level) String() string {
	if int(l) < len(levels) {
		return levels[l].name
	}
	return fmt.Sprintf("level(%d)", uint8(l))
}

// Config is what a logging layer is built from. The zero Config logs to
// nowhere.
type Config struct {
	// Level is which operations are logged.
	Level Level
	// Sinks each get every record, in their order. Nil sinks are left out. They
	// are not closed by the layer.
	Sinks []Sink
}

// New wraps upstream in a logging layer. Without sinks the layer forwards and
// logs nothing. A nil upstream or an unknown level is a
// [core.InvalidRequestError].
func New(upstream core.Resource, cfg Config) (*Resource, error) {
	if upstream == nil {
		return nil, &core.InvalidRequestError{Op: "logging.New", Field: "upstream", Reason: "nil: pass the resource to wrap"}
	}
	r := &Resource{upstream: upstream, ordinal: upstream.Ordinal(), ops: cfg.Level.ops()}
	if r.ops == 0 {
		return nil, &core.InvalidRequestError{Op: "logging.New", Field: "Level", Reason: fmt.Sprintf("%v is unknown: use Operations or Uses", cfg.Level)}
	}
	r.rings, r.sinks = apart(cfg.Sinks)
	if len(r.rings)+len(r.sinks) == 0 {
		r.ops = 0
	}
	if len(r.sinks) > 0 { // a ring orders its records by their times, and a number is a word that every goroutine would write
		r.sequence = &lastSequence
	}
	if r.ops.has(oplog.OpRelease) {
		upstream.Subscribe(listeners.Func(r.released))
	}
	r.path = path.Over(upstream, false).Extend(r, share{r: r}, share{r: r}.ordinary())
	return r, nil
}

// apart separates the rings, which are called directly and so by pointer, from
// the other sinks.
func apart(sinks []Sink) (rings []*Ring, others []Sink) {
	for _, s := range sinks {
		if ring, ok := s.(*Ring); ok {
			rings = append(rings, ring)
		} else if s != nil {
			others = append(others, s)
		}
	}
	return rings, others
}
