package history

import (
	"bufio"
	"encoding/binary"
	"io"
	"strings"
)

// pickler writes a value in Python's pickle protocol 2, as a stream. It uses
// the few opcodes that PyTorch's memory_viz page knows: that reads pickles
// with a small machine of its own in JavaScript.
//
// A value is written by one call. Between beginList and endList each value is
// followed by item; between beginDict and endDict a value follows each key.
// Write errors are sticky and returned by end.
type pickler struct {
	out *bufio.Writer
	// memo is the texts and other values that were written before.
	memo map[string]uint32
	buf  [9]byte
}

// The opcodes.
const (
	opProto      = 0x80
	opStop       = '.'
	opMark       = '('
	opEmptyList  = ']'
	opAppend     = 'a'
	opEmptyDict  = '}'
	opSetItems   = 'u'
	opTuple2     = 0x86
	opTrue       = 0x88
	opFalse      = 0x89
	opInt1       = 'K'
	opInt2       = 'M'
	opInt4       = 'J'
	opLong       = 0x8a
	opText       = 'X'
	opPut        = 'q'
	opPut4       = 'r'
	opGet        = 'h'
	opGet4       = 'j'
	pickleFormat = 2
)

func newPickler(w io.Writer) *pickler {
	p := &pickler{out: bufio.NewWriterSize(w, 64<<10), memo: map[string]uint32{}}
	p.op(opProto, pickleFormat)
	return p
}

func (p *pickler) end() error {
	p.op(opStop)
	return p.out.Flush()
}

func (p *pickler) op(bytes ...byte) { _, _ = p.out.Write(bytes) }

func (p *pickler) beginList() { p.op(opEmptyList) }
func (p *pickler) item()      { p.op(opAppend) }
func (p *pickler) endList()   {}

func (p *pickler) beginDict() { p.op(opEmptyDict, opMark) }
func (p *pickler) endDict()   { p.op(opSetItems) }

func (p *pickler) bool(v bool) {
	if v {
		p.op(opTrue)
		return
	}
	p.op(opFalse)
}

// int writes a whole number in its shortest form.
func (p *pickler) int(n int64) {
	switch {
	case 0 <= n && n < 1<<8:
		p.op(opInt1, byte(n))
	case 0 <= n && n < 1<<16:
		p.op(opInt2, byte(n), byte(n>>8))
	case -1<<31 <= n && n < 1<<31:
		p.op(append(append(p.buf[:0], opInt4), binary.LittleEndian.AppendUint32(nil, uint32(n))...)...)
	default:
		p.op(opLong, 8)
		p.op(binary.LittleEndian.AppendUint64(p.buf[:0], uint64(n))...)
	}
}

// uint writes a number that may not fit in 63 bits.
func (p *pickler) uint(n uint64) {
	if int64(n) >= 0 {
		p.int(int64(n))
		return
	}
	p.op(opLong, 9)
	p.op(append(binary.LittleEndian.AppendUint64(p.buf[:0], n), 0)...)
}

// text writes a text; what is not UTF-8 in it is replaced.
func (p *pickler) text(s string) {
	s = strings.ToValidUTF8(s, "\uFFFD")
	p.op(append(append(p.buf[:0], opText), binary.LittleEndian.AppendUint32(nil, uint32(len(s)))...)...)
	_, _ = p.out.WriteString(s)
}

// word writes a text that comes again: once, and then by number.
func (p *pickler) word(s string) { p.once("word:"+s, func() { p.text(s) }) }

// key writes the key of the value that follows.
func (p *pickler) key(s string) { p.word(s) }

// once writes a value the first time, and refers to it from then on. name
// stands for the value.
func (p *pickler) once(name string, write func()) {
	if n, ok := p.memo[name]; ok {
		p.numbered(opGet, opGet4, n)
		return
	}
	write()
	n := uint32(len(p.memo))
	p.memo[name] = n
	p.numbered(opPut, opPut4, n)
}

func (p *pickler) numbered(short, long byte, n uint32) {
	if n < 1<<8 {
		p.op(short, byte(n))
		return
	}
	p.op(append(append(p.buf[:0], long), binary.LittleEndian.AppendUint32(nil, n)...)...)
}

// pair writes a tuple of two numbers.
func (p *pickler) pair(a, b int64) {
	p.int(a)
	p.int(b)
	p.op(opTuple2)
}
