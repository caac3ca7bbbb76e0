package history

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
)

// pickler writes a value in Python's pickle protocol 2, as a stream. It uses
// the few opcodes that PyTorch's memory_viz page knows: that reads pickles
// with a small machine of its own in JavaScript.
//
// A value is a bool, an int, an int64, a uint64, or of one of the types below; any other
// is an error. Errors are sticky and returned by end.
type pickler struct {
	out *bufio.Writer
	// err is the first value of a type that has no form here.
	err error
	// memo is the words and the shared values that were written before.
	memo map[string]uint32
	buf  [9]byte
}

type (
	// text is a text; what is not UTF-8 in it is replaced. A word is a text that
	// comes again: it is written once, and then by number.
	text string
	word string
	// pair is a tuple.
	pair [2]int64
	// list calls add for each of its values when it is written.
	list func(add func(value any))
	dict []item
	item struct {
		key   word
		value any
	}
	// shared is a value that is made and written the first time, and referred to
	// from then on. name stands for it.
	shared struct {
		name string
		of   func() any
	}
)

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
	return cmp.Or(p.err, p.out.Flush())
}

func (p *pickler) op(bytes ...byte) { _, _ = p.out.Write(bytes) }

// op4 writes an opcode with a number of four bytes.
func (p *pickler) op4(op byte, n uint32) {
	p.op(binary.LittleEndian.AppendUint32(append(p.buf[:0], op), n)...)
}

func (p *pickler) write(value any) {
	switch v := value.(type) {
	case bool:
		if v {
			p.op(opTrue)
		} else {
			p.op(opFalse)
		}
	case int:
		p.int(int64(v))
	case int64:
		p.int(v)
	case uint64:
		p.uint(v)
	case text:
		s := strings.ToValidUTF8(string(v), "\uFFFD")
		p.op4(opText, uint32(len(s)))
		_, _ = p.out.WriteString(s)
	case word:
		p.once("word:"+string(v), func() any { return text(v) })
	case shared:
		p.once(v.name, v.of)
	case pair:
		p.int(v[0])
		p.int(v[1])
		p.op(opTuple2)
	case list:
		p.op(opEmptyList)
		v(func(value any) {
			p.write(value)
			p.op(opAppend)
		})
	case dict:
		p.op(opEmptyDict, opMark)
		for _, i := range v {
			p.write(i.key)
			p.write(i.value)
		}
		p.op(opSetItems)
	default:
		p.err = cmp.Or(p.err, fmt.Errorf("pickle: a value of type %T", value))
	}
}

// int writes a whole number in its shortest form.
func (p *pickler) int(n int64) {
	switch {
	case 0 <= n && n < 1<<8:
		p.op(opInt1, byte(n))
	case 0 <= n && n < 1<<16:
		p.op(opInt2, byte(n), byte(n>>8))
	case -1<<31 <= n && n < 1<<31:
		p.op4(opInt4, uint32(n))
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

// once writes a value the first time, and its number from then on.
func (p *pickler) once(name string, of func() any) {
	n, known := p.memo[name]
	short, long := byte(opGet), byte(opGet4)
	if !known {
		p.write(of())
		n = uint32(len(p.memo))
		p.memo[name] = n
		short, long = opPut, opPut4
	}
	if n < 1<<8 {
		p.op(short, byte(n))
	} else {
		p.op4(long, n)
	}
}
