package mutantswitch

import (
	"fmt"
	"reflect"
)

// set gives v a value that differs from tag.
func set[T comparable](v *T, tag T) {
	from, to := reflect.ValueOf(tag), reflect.ValueOf(v).Elem()
	switch to.Kind() {
	case reflect.String:
		to.SetString(from.String() + "\x00")
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		to.SetInt(from.Int() + 1)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		to.SetUint(from.Uint() + 1)
	case reflect.Bool:
		to.SetBool(!from.Bool())
	default:
		panic(fmt.Sprintf("mutantswitch: no other value of %T", tag))
	}
}
