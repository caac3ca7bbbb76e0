package libcuda

import (
	"fmt"
	"strings"
	"unsafe"
)

// query asks for one thing after another; the first error stays.
type query struct {
	library *Library
	device  uintptr
	err     error
}

// ask calls e with the first n arguments that set puts into the frame.
func (q *query) ask(e entry, n int, set func(*frame), get func(*frame)) {
	if q.err != nil {
		return
	}
	f := newFrame()
	defer f.release()
	set(f)
	if q.err = q.library.fail(e, q.library.call(e, f, n)); q.err == nil {
		get(f)
	}
}

func (q *query) attribute(number int) (value int) {
	q.ask(cuDeviceGetAttribute, 3,
		func(f *frame) { f.args[0], f.args[1], f.args[2] = f.result(0), uintptr(number), q.device },
		func(f *frame) { value = int(int32(f.out[0])) })
	return value
}

func (q *query) totalBytes() (bytes uint64) {
	q.ask(cuDeviceTotalMem, 2,
		func(f *frame) { f.args[0], f.args[1] = f.result(0), q.device },
		func(f *frame) { bytes = f.out[0] })
	return bytes
}

// text asks a function that fills a buffer.
func (q *query) text(e entry) (text string) {
	buffer := make([]byte, 256)
	q.ask(e, 3,
		func(f *frame) {
			f.args[0], f.args[1], f.args[2] = f.host(unsafe.Pointer(&buffer[0])), uintptr(len(buffer)), q.device
		},
		func(*frame) { text = untilNUL(buffer) })
	return text
}

func (q *query) uuid(mig bool) (text string) {
	id := new([16]byte)
	q.ask(cuDeviceGetUUID, 2,
		func(f *frame) { f.args[0], f.args[1] = f.host(unsafe.Pointer(id)), q.device },
		func(*frame) {
			prefix := "GPU"
			if mig {
				prefix = "MIG"
			}
			text = fmt.Sprintf("%s-%x-%x-%x-%x-%x", prefix, id[:4], id[4:6], id[6:8], id[8:10], id[10:])
		})
	return text
}

// untilNUL is a buffer that C wrote a string to.
func untilNUL(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}
