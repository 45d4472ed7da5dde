package kvm

import (
	"os"
	"path/filepath"
	"testing"

	wire "pegasus/callbuf/region"
)

func TestAgentOf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web")
	expect := func(what, release string, came bool) {
		t.Helper()
		if r, c := AgentOf(path); r != release || c != came {
			t.Errorf("%s: %q, %v", what, r, c)
		}
	}
	expect("a region that isn't there", "", false)
	if err := MakeRegion(path, minRegion, -1); err != nil {
		t.Fatal(err)
	}
	expect("a new region", "", false)
	m, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	m.setUsed(true)
	expect("one whose agent says nothing", "", true)
	const at = 2 * wire.PageBytes
	wire.NewGuest(m.mem[at:]).SetRelease("v7\x1b[2J")
	copy(m.lastPage()[wire.PointerOffset:], wire.Pointer{Offset: at, Boot: 1}.Append(nil))
	expect("one whose agent is a joker", "v7", true)
	copy(m.lastPage()[wire.PointerOffset:], wire.Pointer{Offset: m.Bytes(), Boot: 1}.Append(nil))
	expect("one that points out of itself", "", true)
	m.Close()
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	expect("one that was cut off", "", false)
}
