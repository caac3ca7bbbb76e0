package path

import (
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/blocktable"
)

// ownShards is how many tables a book of a layer's own has.
const ownShards = 64

// ownBook are the records of layers whose upstream shares none. They are divided by the stream of
// the allocation, so that goroutines on different streams stay off each other's cache lines.
type ownBook struct {
	records  *Records
	upstream core.Resource
	hears    atomic.Pointer[[]Listener]
	spare    sync.Pool // of *ownRecord
	shards   [ownShards]ownShard
}

type ownRecord struct {
	node blocktable.Node[ownRecord]
	Record
}

type ownShard struct {
	mu    sync.Mutex
	table blocktable.Table[ownRecord]
	_     [40]byte // keeps neighbours on different cache lines
}

func (o *ownBook) shard(id core.BlockID) *ownShard {
	return &o.shards[uint64(id.AllocStream)%ownShards]
}

// enter is the record of a block, a new one if another layer has not entered it.
func (o *ownBook) enter(b *core.Block) *Record {
	rec, _ := o.spare.Get().(*ownRecord)
	if rec == nil || !o.records.Fits(&rec.Record) {
		rec = o.make()
	}
	g, s := b.ID.Generation, o.shard(b.ID)
	s.mu.Lock()
	if known := s.table.Find(g); known != nil {
		s.mu.Unlock()
		o.spare.Put(rec)
		return &known.Record
	}
	rec.node.Word.Store(blocktable.Word(g, 0))
	s.table.Insert(g, &rec.node, rec)
	s.mu.Unlock()
	return &rec.Record
}

// make makes records, and keeps all but one.
func (o *ownBook) make() *ownRecord {
	made := new([AtOnce]ownRecord)
	o.records.Equip(func(i int) *Record { return &made[i].Record })
	for i := range AtOnce - 1 {
		o.spare.Put(&made[i])
	}
	return &made[AtOnce-1]
}

// Load looks only where the record should be.
func (o *ownBook) Load(id core.BlockID) *Record {
	return recordOf(o.shard(id).table.Load(id.Generation))
}

// Find looks everywhere in the end: a caller may have made up the stream.
func (o *ownBook) Find(id core.BlockID) *Record {
	if rec := o.Load(id); rec != nil {
		return rec
	}
	home := o.shard(id)
	if rec := home.find(id.Generation); rec != nil {
		return recordOf(rec)
	}
	for i := range o.shards {
		if s := &o.shards[i]; s != home {
			if rec := s.find(id.Generation); rec != nil {
				return recordOf(rec)
			}
		}
	}
	return nil
}

func (s *ownShard) find(g core.Generation) *ownRecord {
	if s.table.Unused() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.table.Find(g)
}

func recordOf(rec *ownRecord) *Record {
	if rec == nil {
		return nil
	}
	return &rec.Record
}

// Each lists the tables one after the other.
func (o *ownBook) Each(yield func(core.Generation, *Record) bool) {
	for i := range o.shards {
		s := &o.shards[i]
		if !s.table.List(&s.mu, func(g core.Generation, rec *ownRecord) bool { return yield(g, &rec.Record) }) {
			return
		}
	}
}

// subscribe adds a layer; with the first the book hears of its upstream.
func (o *ownBook) subscribe(l Listener) {
	for {
		old := o.hears.Load()
		var next []Listener
		if old != nil {
			next = append(next, *old...)
		}
		next = append(next, l)
		if o.hears.CompareAndSwap(old, &next) {
			if old == nil {
				o.upstream.Subscribe(o)
			}
			return
		}
	}
}

// Released takes the record of a block out, tells the layers, and keeps it for another block.
func (o *ownBook) Released(b core.Block) {
	s := o.shard(b.ID)
	s.mu.Lock()
	rec := s.table.Remove(b.ID.Generation)
	s.mu.Unlock()
	for _, l := range *o.hears.Load() {
		l.Hear(recordOf(rec), b)
	}
	if rec != nil {
		o.spare.Put(rec)
	}
}
