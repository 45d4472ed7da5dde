package handles

import (
	"testing"

	"pegasus/cuda"
)

// A lookup returns the table's present content, also right after a lookup of the same id.
func TestTable(t *testing.T) {
	all := New[string]()
	want := func(id uint64, name string, result cuda.Result) {
		t.Helper()
		for range 2 {
			if got, r := all.Get(id); got != name || r != result {
				t.Errorf("%d is %q, %v; want %q, %v", id, got, r, name, result)
			}
		}
	}
	want(0, "", cuda.ErrorInvalidHandle)
	want(1, "", cuda.ErrorInvalidHandle)
	all.Put(1, "one")
	all.Put(2, "two")
	all.Fail(3, cuda.ErrorOutOfMemory)
	want(1, "one", cuda.Success)
	want(2, "two", cuda.Success)
	want(3, "", cuda.ErrorOutOfMemory)
	want(2, "two", cuda.Success)
	if got, r := all.Take(2); got != "two" || r != cuda.Success {
		t.Errorf("%q, %v", got, r)
	}
	want(2, "", cuda.ErrorInvalidHandle)
	all.Put(2, "another two")
	want(2, "another two", cuda.Success)
	want(1, "one", cuda.Success)
	all.DeleteFunc(func(name string) bool { return name == "one" })
	want(1, "", cuda.ErrorInvalidHandle)
	want(2, "another two", cuda.Success)
}
