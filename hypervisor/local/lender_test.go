package local

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/callbuf"
	"pegasus/hypervisor"
)

// A hub lends the segment of its machine's process; the daemon checks the loan first.
func TestLender(t *testing.T) {
	terms := hypervisor.Terms{Geometry: callbuf.Geometry{RingSlots: 128, ReplySlots: 8, EventWords: 16, ReleaseWords: 16, ArenaBytes: 4096}}
	l, err := terms.Geometry.Layout()
	if err != nil {
		t.Fatal(err)
	}
	good := callbuf.Extents{{Offset: 4096, Bytes: l.SegmentBytes - 4096}, {Offset: 0, Bytes: 4096}}
	for _, c := range []struct {
		name  string
		parts callbuf.Extents
		file  uint64
		fails string
	}{
		{"good", good, l.SegmentBytes, ""},
		{"too small a file", good, l.SegmentBytes - 4096, "beyond the file"},
		{"nothing", nil, l.SegmentBytes, "extents of 0 bytes"},
		{"no file", good, 0, "no file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			lent := make(chan error, 1)
			endpoint := open(t, hypervisor.Domain{Name: "vm", Mode: 0o600}, func(_ context.Context, n hypervisor.Connection) {
				if n.PID() != 0 || n.Process() != nil {
					t.Errorf("process %d of a machine is one of the host", n.PID())
				}
				if most := n.(hypervisor.Lender).MostBytes(); most != 3<<20 {
					t.Errorf("it has memory for an arena of %d bytes", most)
				}
				f, loan, err := n.(hypervisor.Lender).Lend(terms)
				if err == nil {
					f.Close()
					if loan.Generation != 7 || loan.Parts.Bytes() != l.SegmentBytes {
						t.Errorf("%+v", loan)
					}
				}
				lent <- err
			})
			lend(t, endpoint.Address(), terms, hypervisor.Loan{Generation: 7, Parts: c.parts}, c.file)
			err := <-lent
			if (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
				t.Errorf("got %v, want %q", err, c.fails)
			}
		})
	}
}

// lend simulates the hub.
func lend(t *testing.T, path string, want hypervisor.Terms, loan hypervisor.Loan, bytes uint64) {
	t.Helper()
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	c.Write(callbuf.Hello{Version: callbuf.Version, Features: callbuf.FeatureApart, MostBytes: 3 << 20}.Append(nil))
	buf := make([]byte, 4096)
	n, err := c.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	var got hypervisor.Terms
	if err := json.Unmarshal(buf[:n], &got); err != nil || got != want {
		t.Fatalf("%+v, %v", got, err)
	}
	var rights []byte
	if bytes > 0 {
		f, err := os.CreateTemp(t.TempDir(), "region")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := f.Truncate(int64(bytes)); err != nil {
			t.Fatal(err)
		}
		rights = unix.UnixRights(int(f.Fd()))
	}
	b, _ := json.Marshal(loan)
	if _, _, err := c.WriteMsgUnix(b, rights, nil); err != nil {
		t.Fatal(err)
	}
}
