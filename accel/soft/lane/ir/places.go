package ir

import "reflect"

var placeType = reflect.TypeFor[Place]()

// Places calls f with the places in a value of any type.
func Places(v reflect.Value, f func(p Place)) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			Places(v.Elem(), f)
		}
	case reflect.Slice, reflect.Array:
		switch v.Type().Elem().Kind() {
		case reflect.Struct, reflect.Pointer, reflect.Interface:
			for i := range v.Len() {
				Places(v.Index(i), f)
			}
		}
	case reflect.Struct:
		if v.Type() == placeType {
			f(Place{Slot: int32(v.FieldByName("Slot").Int()), Kind: Kind(v.FieldByName("Kind").Uint()), Affine: uint16(v.FieldByName("Affine").Uint())})
			return
		}
		for i := range v.NumField() {
			Places(v.Field(i), f)
		}
	}
}
