package agent

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

// A program finds a socket at any time, also while one agent replaces another.
func TestListen(t *testing.T) {
	dir, err := os.MkdirTemp("", "pg")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "run/guest.sock")
	for range 2 {
		l, err := listen(nil, path, "")
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("unixpacket", path)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		l.Close()
		if st, err := os.Stat(path); err != nil || st.Mode()&0o777 != 0o666 {
			t.Errorf("after an agent's end: %v, %v", st, err)
		}
	}
	l, err := listen(nil, path, "root")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if st, err := os.Stat(path); err != nil || st.Mode()&0o777 != 0o660 {
		t.Errorf("for a group: %v, %v", st, err)
	}
	if _, err := listen(nil, path, "nobody-is-in-it"); err == nil {
		t.Error("a group that isn't there")
	}
}
