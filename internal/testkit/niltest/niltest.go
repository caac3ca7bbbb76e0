// Package niltest looks at what methods of a nil handle do.
package niltest

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
)

var errorType = reflect.TypeFor[error]()

// Refuses calls every method of a nil handle that can return an error, with
// arguments that say nothing, and demands the error of a request that is
// malformed: a method that is added is looked at by itself.
func Refuses(t *testing.T, handle any) {
	t.Helper()
	v := reflect.ValueOf(handle)
	for i := range v.NumMethod() {
		method, name := v.Method(i), v.Type().Method(i).Name
		kind := method.Type()
		if n := kind.NumOut(); n == 0 || kind.Out(n-1) != errorType {
			continue
		}
		args := make([]reflect.Value, 0, kind.NumIn())
		for j := range kind.NumIn() {
			if kind.In(j) == reflect.TypeFor[context.Context]() {
				args = append(args, reflect.ValueOf(t.Context()))
			} else if !kind.IsVariadic() || j < kind.NumIn()-1 {
				args = append(args, reflect.Zero(kind.In(j)))
			}
		}
		func() {
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("%v.%s of nil panics: %v", v.Type(), name, p)
				}
			}()
			out := method.Call(args)
			err, _ := out[len(out)-1].Interface().(error)
			if e, ok := errors.AsType[*core.InvalidRequestError](err); !ok || e.Op == "" || e.Field == "" || e.Reason == "" {
				t.Errorf("%v.%s of nil: %v", v.Type(), name, err)
			}
		}()
	}
}
