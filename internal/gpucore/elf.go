package gpucore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

var le = binary.LittleEndian

const (
	headerSize  = 64 // of an ELF file and of a section
	machineCUDA = 0xbe
	maxRow      = 4096
)

// elf is a 64-bit ELF file for a GPU.
type elf struct {
	r            io.ReaderAt
	size         int64
	kind         uint16
	offset       int64 // of the section headers
	count, names uint32
	buf          []byte // for rows
	left         int64  // how many bytes of tables may be read: they do not overlap
}

// section is a section's header.
type section struct {
	index        uint32
	kind         uint32
	addr         uint64
	offset, size int64
	link, info   uint32
	row          int64 // the size of one entry
}

var errTruncated = errors.New("the dump is cut short or damaged")

// openELF reads the header of a file of size bytes.
func openELF(r io.ReaderAt, size int64) (elf, error) {
	f := elf{r: r, size: size, left: size}
	h, err := f.bytes(0, headerSize)
	if err != nil {
		return f, err
	}
	f.kind = le.Uint16(h[16:])
	if string(h[:6]) != "\x7fELF\x02\x01" || le.Uint16(h[18:]) != machineCUDA {
		return f, errors.New("this is no ELF file of a GPU")
	}
	offset := le.Uint64(h[40:])
	f.count, f.names = uint32(le.Uint16(h[60:])), uint32(le.Uint16(h[62:]))
	if offset == 0 || offset > uint64(size) {
		return f, errTruncated
	}
	f.offset = int64(offset)
	if le.Uint16(h[58:]) != headerSize {
		return f, errors.New("the section headers have another size")
	}
	if f.count == 0 || f.names == 0xffff { // numbers that do not fit are in the first section
		first, err := f.bytes(f.offset, headerSize)
		if err != nil {
			return f, err
		}
		if f.count == 0 {
			f.count = uint32(min(le.Uint64(first[32:]), 1<<32-1))
		}
		if f.names == 0xffff {
			f.names = le.Uint32(first[40:])
		}
	}
	if int64(f.count) > (size-f.offset)/headerSize {
		return f, errTruncated
	}
	return f, nil
}

// bytes reads n bytes, which the caller has bounded.
func (f *elf) bytes(offset, n int64) ([]byte, error) {
	if offset < 0 || n < 0 || offset > f.size || n > f.size-offset {
		return nil, errTruncated
	}
	b := make([]byte, n)
	_, err := f.r.ReadAt(b, offset)
	return b, err
}

// sections calls each with every section in the file's order.
func (f *elf) sections(each func(section) error) error {
	const some = 256
	var buf [some * headerSize]byte
	for i := uint32(0); i < f.count; i += some {
		n := min(some, f.count-i)
		b := buf[:n*headerSize]
		if _, err := f.r.ReadAt(b, f.offset+int64(i)*headerSize); err != nil {
			return err
		}
		for k := range n {
			h := b[k*headerSize:]
			s := section{index: i + k, kind: le.Uint32(h[4:]), addr: le.Uint64(h[16:]), link: le.Uint32(h[40:]), info: le.Uint32(h[44:])}
			// A size that fits no file stays one when it is used.
			s.offset, s.size, s.row = bounded(le.Uint64(h[24:])), bounded(le.Uint64(h[32:])), bounded(le.Uint64(h[56:]))
			if err := each(s); err != nil {
				return err
			}
		}
	}
	return nil
}

func bounded(n uint64) int64 { return int64(min(n, 1<<62)) }

// contents reads a section of at most limit bytes; what is longer is cut off.
func (f *elf) contents(s section, limit int64) ([]byte, error) {
	if s.size > f.size-min(s.offset, f.size) {
		return nil, errTruncated
	}
	return f.bytes(s.offset, min(s.size, limit))
}

// rows calls each with every row of a table. A row is at least shortest bytes long.
func (f *elf) rows(s section, shortest int64, each func(i uint32, row []byte) error) error {
	if s.size == 0 {
		return nil
	}
	if s.row < shortest || s.row > maxRow {
		return fmt.Errorf("section %d has rows of %d bytes, and %d at least are expected", s.index, s.row, shortest)
	}
	if f.left -= min(s.size, f.size); f.left < 0 || s.size > f.size-min(s.offset, f.size) {
		return errTruncated
	}
	if int64(cap(f.buf)) < s.row {
		f.buf = make([]byte, s.row)
	}
	buf := f.buf[:s.row]
	f.buf = nil // each may read rows too
	for i := range s.size / s.row {
		if _, err := f.r.ReadAt(buf, s.offset+i*s.row); err != nil {
			return err
		}
		if err := each(uint32(i), buf); err != nil {
			return err
		}
	}
	f.buf = buf
	return nil
}

// oneRow reads one row of a table.
func (f *elf) oneRow(s section, i uint32, shortest int64) ([]byte, error) {
	if s.row < shortest || s.row > maxRow || int64(i) >= s.size/s.row {
		return nil, fmt.Errorf("section %d has no row %d of %d bytes", s.index, i, shortest)
	}
	return f.bytes(s.offset+int64(i)*s.row, s.row)
}

// text reads the string at an offset of a table of strings; at most 4 KiB of it.
func (f *elf) text(table section, at uint64) string {
	if table.size > f.size-min(table.offset, f.size) || at >= uint64(table.size) {
		return ""
	}
	b, err := f.bytes(table.offset+int64(at), min(table.size-int64(at), 4096))
	if err != nil {
		return ""
	}
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return ""
}
