// Package jsonobject writes objects in JSON whose members are known where they are
// written and nowhere else: without a type that has each of them a second time.
package jsonobject

import (
	"encoding/json"
	"strconv"
)

// Object is an object in JSON: keys, which need no escapes, and values in turn. They
// are written in that order.
type Object []any

// MarshalJSON writes the object. The error is that of a value.
func (o Object) MarshalJSON() ([]byte, error) { return o.appendTo(nil) }

func (o Object) appendTo(to []byte) (_ []byte, err error) {
	to = append(to, '{')
	for i := 0; i < len(o); i += 2 {
		if i > 0 {
			to = append(to, ',')
		}
		to = append(append(append(to, '"'), o[i].(string)...), `":`...)
		switch v := o[i+1].(type) {
		case Object:
			to, err = v.appendTo(to)
		case int:
			to = strconv.AppendInt(to, int64(v), 10)
		case json.Number:
			to = append(to, v...)
		case uint64:
			to = strconv.AppendUint(to, v, 10)
		default:
			var text []byte
			text, err = json.Marshal(v)
			to = append(to, text...)
		}
		if err != nil {
			return nil, err
		}
	}
	return append(to, '}'), nil
}
