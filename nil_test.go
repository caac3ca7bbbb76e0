package fencepost_test

import (
	"reflect"
	"testing"

	"github.com/fencepost-gpu/fencepost"
)

// No method of a nil Runtime panics, such as that of one whose Open failed.
func TestNoMethodOfANilRuntimePanics(t *testing.T) {
	none := reflect.ValueOf((*fencepost.Runtime)(nil))
	for i := range none.NumMethod() {
		name := none.Type().Method(i).Name
		t.Run(name, func(t *testing.T) {
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("it panics: %v", p)
				}
			}()
			method := none.Method(i)
			args := []reflect.Value{}
			for j := range method.Type().NumIn() {
				args = append(args, reflect.Zero(method.Type().In(j)))
			}
			if method.Type().IsVariadic() {
				method.CallSlice(args)
			} else {
				method.Call(args)
			}
		})
	}
}
