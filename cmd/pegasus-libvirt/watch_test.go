//go:build cgo && libvirt_dlopen

package main

import (
	"bufio"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	report "pegasus/hypervisor/libvirt"
)

// A watcher whose libvirtd hangs, trickles or resets reports that it is away, and ends or tries again: it
// neither blocks without end nor uses a processor.
func TestWatchHungLibvirtd(t *testing.T) {
	dir := os.Getenv("PEGASUS_BUILD")
	if dir == "" {
		dir = "../../build"
	}
	program := filepath.Join(dir, "bin/pegasus-libvirt")
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("%v; run `make build` first", err)
	}
	for what, peer := range map[string]func(net.Conn){
		"hangs": func(c net.Conn) { io.Copy(io.Discard, c) },
		"trickles": func(c net.Conn) {
			for _, b := range []byte{0, 0, 255, 255} { // a slow packet
				c.Write([]byte{b})
			}
			for _, err := c.Write([]byte{0}); err == nil; _, err = c.Write([]byte{0}) {
				time.Sleep(10 * time.Millisecond)
			}
		},
		"resets": func(c net.Conn) { c.Read(make([]byte, 1)) },
	} {
		t.Run(what, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "libvirt-sock")
			l, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					go func() { defer c.Close(); peer(c) }()
				}
			}()
			cmd := exec.Command(program, "watch", "--connect", "qemu+unix:///system?socket="+socket, "--patience", "1s")
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			kill := time.AfterFunc(30*time.Second, func() { cmd.Process.Kill() })
			defer kill.Stop()
			lines := bufio.NewScanner(out)
			if !lines.Scan() {
				t.Error("it reports nothing")
			} else if r, err := report.ParseReport(lines.Bytes()); err != nil || r.Away == "" {
				t.Errorf("it reports %s, %v", lines.Bytes(), err)
			} else if strings.Contains(r.Away, "isn't installed") {
				t.Fatalf("%s; run `make vm-test`, which installs it", r.Away)
			} else if what != "resets" && !strings.Contains(r.Away, "hasn't answered within 1s") {
				t.Errorf("it is away because %q", r.Away)
			}
			in.Close()
			cmd.Wait()
			if d := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(); d > time.Second/2 {
				t.Errorf("it took %v of processor time", d)
			}
		})
	}
}
