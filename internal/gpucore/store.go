package gpucore

import (
	"bytes"
	"compress/flate"
	"errors"
	"fmt"
	"io"
)

const (
	chunkSize  = 256 << 10
	maxInput   = 1 << 30
	maxStored  = 256 << 20
	chunksHeld = 8
)

// store holds a stream as compressed chunks and reads any part of it again.
type store struct {
	chunks [][]byte
	size   int64
	held   [chunksHeld]heldChunk
	uses   int // counts reads of a chunk; the chunk used longest ago makes room
	budget int // how many more chunks may be unpacked
	unpack io.ReadCloser
}

type heldChunk struct {
	index, used int
	data        []byte // nil: nothing is held
}

// newStore reads r to its end.
func newStore(r io.Reader) (*store, error) {
	s := &store{}
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, flate.BestSpeed)
	if err != nil {
		return nil, err
	}
	buf := make([]byte, chunkSize)
	for stored := 0; ; {
		n, err := io.ReadFull(r, buf)
		if n > 0 {
			if s.size += int64(n); s.size > maxInput {
				return nil, fmt.Errorf("gpucore: the dump is larger than %d MiB", maxInput>>20)
			}
			packed.Reset()
			w.Reset(&packed)
			_, werr := w.Write(buf[:n])
			if err := errors.Join(werr, w.Close()); err != nil {
				return nil, err
			}
			if stored += packed.Len(); stored > maxStored {
				return nil, fmt.Errorf("gpucore: the dump takes more than %d MiB compressed", maxStored>>20)
			}
			s.chunks = append(s.chunks, bytes.Clone(packed.Bytes()))
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			s.budget = 16*len(s.chunks) + 4096
			return s, nil
		case err != nil:
			return nil, fmt.Errorf("gpucore: reading the dump: %w", err)
		}
	}
}

// ReadAt implements [io.ReaderAt]. It keeps the chunks read last.
func (s *store) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, errors.New("a negative offset")
	}
	for n < len(p) {
		if off >= s.size {
			return n, io.EOF
		}
		data, err := s.chunk(int(off / chunkSize))
		if err != nil {
			return n, err
		}
		c := copy(p[n:], data[off%chunkSize:])
		n += c
		off += int64(c)
	}
	return n, nil
}

// chunk returns the bytes of a chunk, valid until the next call.
func (s *store) chunk(index int) ([]byte, error) {
	s.uses++
	victim := &s.held[0]
	for i := range s.held {
		h := &s.held[i]
		if h.data != nil && h.index == index {
			h.used = s.uses
			return h.data, nil
		}
		if h.used < victim.used {
			victim = h
		}
	}
	if s.budget--; s.budget < 0 {
		return nil, errors.New("the dump's sections are spread too widely to read")
	}
	packed := bytes.NewReader(s.chunks[index])
	if s.unpack == nil {
		s.unpack = flate.NewReader(packed)
	} else if err := s.unpack.(flate.Resetter).Reset(packed, nil); err != nil { //nolint:forcetypeassert // flate says so
		return nil, err
	}
	buf := victim.data[:cap(victim.data)]
	if buf == nil {
		buf = make([]byte, chunkSize)
	}
	length := min(chunkSize, s.size-int64(index)*chunkSize)
	*victim = heldChunk{index: index, used: s.uses, data: buf[:length]}
	if _, err := io.ReadFull(s.unpack, victim.data); err != nil {
		victim.data = nil
		return nil, err
	}
	return victim.data, nil
}
