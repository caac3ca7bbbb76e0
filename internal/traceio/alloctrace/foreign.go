package alloctrace

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// foreignKeys tell by a key of the outermost object what other programs write.
var foreignKeys = [...]struct{ key, kind string }{
	{"traceEvents", "a trace in Chrome's JSON format, which is for Perfetto"},
	{"device_traces", "a PyTorch memory snapshot"},
	{"segments", "a PyTorch memory snapshot"},
	{"resourceSpans", "spans in OTLP's JSON"},
	{"resourceMetrics", "metrics in OTLP's JSON"},
	{"finding", "an incident of Fencepost's, which fencepost incident shows"},
}

// foreign says by a file's beginning what it is, if it is of a kind that this
// package does not read. Empty for what may be a trace.
func foreign(head []byte) string {
	switch head[0] {
	case 0x80:
		return "a pickle, such as a PyTorch memory snapshot"
	case '[':
		return "a JSON array, such as a trace in Chrome's format"
	case '{':
		return foreignObject(head)
	}
	if bytes.HasPrefix(head, []byte("SQLite format 3")) {
		return "an SQLite database, such as Nsight Systems exports"
	}
	return ""
}

func foreignObject(head []byte) string {
	keys, whole := outerKeys(head)
	if slices.Contains(keys, "op") {
		return ""
	}
	for _, f := range foreignKeys {
		if slices.Contains(keys, f.key) {
			return f.kind
		}
	}
	if !whole || len(keys) == 0 {
		return ""
	}
	return fmt.Sprintf("JSON of another kind (with %q)", strings.Join(keys[:min(len(keys), 5)], ", "))
}

// outerKeys are the keys of the first object as far as head has it. It is whole
// also if head has its end no more, and more than its first line: no log's record
// goes on in another line.
func outerKeys(head []byte) (keys []string, whole bool) {
	d := json.NewDecoder(bytes.NewReader(head))
	_, err := d.Token() // the brace
	for err == nil && d.More() {
		var key json.Token
		if key, err = d.Token(); err != nil {
			break
		}
		keys = append(keys, fmt.Sprint(key))
		whole = bytes.IndexByte(head[:d.InputOffset()], '\n') >= 0
		err = d.Decode(new(json.RawMessage))
	}
	if err == nil {
		_, err = d.Token()
	}
	return keys, whole || err == nil
}
