package agent

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The next agent finds the files of the previous one, beside the socket.
func TestFDStore(t *testing.T) {
	if os.Getenv("PEGASUS_TEST_SHELF") != "" {
		s, sockets := inherit()
		f := s.Take("words")
		if f == nil || len(sockets) != 1 || s.Take("words") != nil || s.Take("other") != nil {
			t.Fatalf("%v, %v, %v", f, s.kept, sockets)
		}
		words, err := os.ReadFile("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
		t.Logf("left: %q, %v", words, err)
		return
	}
	dir := t.TempDir()
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "n"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.SetReadDeadline(time.Now().Add(time.Minute))
	s := &FDStore{}
	if s.Holds() {
		t.Error("nobody is there to keep it")
	}
	t.Setenv("NOTIFY_SOCKET", filepath.Join(dir, "n"))
	if !s.Holds() {
		t.Error("somebody is there to keep it")
	}
	words := filepath.Join(dir, "words")
	if err := os.WriteFile(words, []byte("of the first"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(words)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Leave("words", f); err != nil {
		t.Fatal(err)
	}
	f.Close()
	said, oob := make([]byte, 100), make([]byte, 100)
	n, oobn, _, _, err := l.ReadMsgUnix(said, oob)
	if err != nil {
		t.Fatal(err)
	}
	name, ok := strings.CutPrefix(string(said[:n]), "FDSTORE=1\nFDPOLL=0\nFDNAME=")
	if !ok {
		t.Errorf("%q", said[:n])
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(messages) != 1 {
		t.Fatal(messages, err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		t.Fatal(fds, err)
	}
	left := os.NewFile(uintptr(fds[0]), "left")
	defer left.Close()
	if err := s.Drop("words"); err != nil {
		t.Fatal(err)
	}
	if n, err := l.Read(said); err != nil || string(said[:n]) != "FDSTOREREMOVE=1\nFDNAME="+name {
		t.Errorf("%q, %v", said[:n], err)
	}
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	cmd := exec.Command("sh", "-c", `LISTEN_PID=$$ exec "$0" -test.run '^TestFDStore$' -test.v`, os.Args[0])
	cmd.Env = append(os.Environ(), "PEGASUS_TEST_SHELF=1", "LISTEN_FDS=2", "LISTEN_FDNAMES=pegasus-guest.socket:"+name)
	cmd.ExtraFiles = []*os.File{null, left}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), `left: "of the first", <nil>`) {
		t.Errorf("%v: %s", err, out)
	}
}
