package wire

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// The bytes of a packet, as xs_wire.h has them.
func TestPacket(t *testing.T) {
	p := Packet{Read, 0x01020304, 5, Join("/a")}
	golden := []byte{2, 0, 0, 0, 4, 3, 2, 1, 5, 0, 0, 0, 3, 0, 0, 0, '/', 'a', 0}
	b := p.Append([]byte{9})
	if !bytes.Equal(b[1:], golden) || b[0] != 9 {
		t.Errorf("% x", b)
	}
	var parser Parser
	for i, c := range golden {
		need := HeaderBytes - i
		if i >= HeaderBytes {
			need = len(golden) - i
		}
		if got := parser.Need(); got != need {
			t.Errorf("after %d bytes it needs %d, wanted %d", i, got, need)
		}
		if _, ok, err := parser.Next(); ok || err != nil {
			t.Errorf("after %d bytes: %v, %v", i, ok, err)
		}
		parser.Feed([]byte{c})
	}
	if parser.Need() != 0 {
		t.Errorf("a whole packet needs %d", parser.Need())
	}
	got, ok, err := parser.Next()
	if !ok || err != nil || got.Type != p.Type || got.ID != p.ID || got.Tx != p.Tx || !bytes.Equal(got.Body, p.Body) {
		t.Errorf("%+v, %v, %v", got, ok, err)
	}
}

// A body may have BodyMax bytes; a header that announces more ends the stream.
func TestTooLong(t *testing.T) {
	var parser Parser
	parser.Feed(Packet{Type: Write, Body: make([]byte, BodyMax)}.Append(nil))
	if p, ok, err := parser.Next(); !ok || err != nil || len(p.Body) != BodyMax {
		t.Errorf("the longest: %v, %v", ok, err)
	}
	b := Packet{Type: Write}.Append(nil)
	le.PutUint32(b[12:], BodyMax+1)
	parser.Feed(b)
	for range 2 {
		if _, ok, err := parser.Next(); ok || !errors.Is(err, ErrTooLong) {
			t.Errorf("too long: %v, %v", ok, err)
		}
		parser.Feed(Packet{}.Append(nil))
	}
	defer func() {
		if recover() == nil {
			t.Error("a packet that nobody takes is encoded")
		}
	}()
	Packet{Body: make([]byte, BodyMax+1)}.Append(nil)
}

func TestStrings(t *testing.T) {
	for body, want := range map[string][]string{
		"": nil, "a": {"a"}, "a\x00": {"a"}, "\x00": {""}, "a\x00\x00": {"a", ""}, "a\x00b": {"a", "b"}, "a\x00b\x00": {"a", "b"},
	} {
		if got := Split([]byte(body)); !slices.Equal(got, want) {
			t.Errorf("%q: %q, wanted %q", body, got, want)
		}
	}
	if got := Join("a", "", "b"); string(got) != "a\x00\x00b\x00" {
		t.Errorf("%q", got)
	}
	if Text([]byte("OK\x00")) != "OK" || Text([]byte("OK")) != "OK" {
		t.Error("texts")
	}
}

func TestErrors(t *testing.T) {
	for name, want := range map[string]error{
		"ENOENT": syscall.ENOENT, "EACCES": syscall.EACCES, "EAGAIN": syscall.EAGAIN,
		"EQUOTA": syscall.EDQUOT, "EWEIRD": Name("EWEIRD"), "": Name(""),
	} {
		if got := Errno(name); got != want {
			t.Errorf("%q: %v, wanted %v", name, got, want)
		}
	}
	for e := range known {
		if Errno(ErrnoName(e)) != e {
			t.Errorf("%v is sent as %s", e, ErrnoName(e))
		}
	}
	if got := ErrnoName(syscall.EPIPE); got != "EINVAL" {
		t.Errorf("what can't be sent is sent as %s", got)
	}
}

func TestTypes(t *testing.T) {
	for typ, want := range map[Type]string{0: "CONTROL", 15: "WATCH_EVENT", 19: "SET_TARGET", 20: "type 20", 21: "RESET_WATCHES", 26: "SET_QUOTA", 27: "type 27"} {
		if typ.String() != want {
			t.Errorf("%d is %s, wanted %s", typ, typ, want)
		}
	}
}

func TestPerms(t *testing.T) {
	for _, s := range []string{"n0", "r12", "w65535", "b7"} {
		p, err := ParsePerm(s)
		if err != nil || p.String() != s {
			t.Errorf("%s: %v, %v", s, p, err)
		}
	}
	if p, _ := ParsePerm("b7"); p != (Perm{ReadWrite, 7}) || p.Access != CanRead|CanWrite {
		t.Errorf("%+v", p)
	}
	for _, s := range []string{"", "r", "x1", "r-1", "r65536", "r1 ", "rr1", "1", "R1", "r0x1", "r+1"} {
		if p, err := ParsePerm(s); err == nil {
			t.Errorf("%q is taken for %v", s, p)
		}
	}
	if _, err := ParsePerms([]string{"r1", "q"}); err == nil {
		t.Error("a bad one among others is taken")
	}
}

func TestPaths(t *testing.T) {
	long := "/" + strings.Repeat("x", AbsoluteMax-1)
	for path, want := range map[string]bool{
		"/": true, "/a": true, "a": true, "a/b": true, "/A-Z_0/@": true, long: true, long[:RelativeMax]: true,
		long[1 : RelativeMax+1]: true, long + "x": false, long[1 : RelativeMax+2]: false,
		"": false, "//": false, "/a/": false, "a//b": false, "a b": false, "a.b": false, "ä": false, "a\x00": false, "@x": false,
	} {
		if err := CheckPath(path); (err == nil) != want {
			t.Errorf("%.40q: %v", path, err)
		}
	}
	for path, want := range map[string]bool{
		IntroduceDomain: true, "@anything at all": true, "/a": true, "": false, "/a/": false, "@a\x00b": false,
		"@" + strings.Repeat("x", RelativeMax): false,
	} {
		if err := CheckWatchPath(path); (err == nil) != want {
			t.Errorf("watching %.40q: %v", path, err)
		}
	}
	for path, want := range map[string][2]string{"/a/b": {"/a", "b"}, "/a": {"/", "a"}, "/": {"/", ""}} {
		if Parent(path) != want[0] || Base(path) != want[1] {
			t.Errorf("%s: %s, %s", path, Parent(path), Base(path))
		}
	}
	for _, test := range []struct {
		path, dir string
		want      bool
	}{{"/a/b", "/a", true}, {"/a", "/a", true}, {"/ab", "/a", false}, {"/a", "/", true}, {"/", "/a", false}} {
		if Below(test.path, test.dir) != test.want {
			t.Errorf("%s below %s: %v", test.path, test.dir, !test.want)
		}
	}
}
