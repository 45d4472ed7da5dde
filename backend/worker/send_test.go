package worker

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A message with files is sent although a deadline has passed meanwhile, as on a host without a free processor. Only a
// full socket refuses it.
func TestSendNow(t *testing.T) {
	address := &net.UnixAddr{Net: "unixpacket", Name: filepath.Join(t.TempDir(), "s")}
	l, err := net.ListenUnix("unixpacket", address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.DialUnix("unixpacket", nil, address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	peer, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()

	c.SetWriteDeadline(time.Now().Add(-time.Second))
	if err := sendNow(c, Report{Why: "it ends"}, []*os.File{file}); err != nil {
		t.Fatal(err)
	}
	var got Report
	files, err := receive(peer, &got)
	if err != nil || got.Why != "it ends" || len(files) != 1 {
		t.Errorf("got %+v with %d files, %v", got, len(files), err)
	}
	closeAll(files)
	for err = nil; err == nil; {
		err = sendNow(c, Report{}, nil)
	}
	if !errors.Is(err, unix.EAGAIN) {
		t.Errorf("a full socket: %v, want EAGAIN", err)
	}
}
