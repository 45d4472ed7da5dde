package wire

import (
	"bytes"
	"testing"
)

// However a stream is cut, the parser returns the same packets, which encode to the same bytes; and the held rest is
// the prefix of the next packet.
func FuzzParser(f *testing.F) {
	f.Add(Packet{Read, 1, 0, Join("/a")}.Append(Packet{Type: WatchEvent, Body: Join("/a", "t")}.Append(nil)), uint8(3))
	f.Add(bytes.Repeat([]byte{0xff}, 40), uint8(16))
	f.Fuzz(func(t *testing.T, stream []byte, cut uint8) {
		whole, err := parse(stream, len(stream))
		pieces, err2 := parse(stream, int(cut))
		if (err == nil) != (err2 == nil) || !bytes.Equal(whole, pieces) {
			t.Fatalf("whole % x, %v\npieces % x, %v", whole, err, pieces, err2)
		}
		if !bytes.HasPrefix(stream, whole) {
			t.Fatalf("% x\nis encoded as % x", stream, whole)
		}
		if left := len(stream) - len(whole); err == nil && left >= HeaderBytes+BodyMax {
			t.Fatalf("%d bytes are left without an error", left)
		}
	})
}

// parse feeds a stream in pieces and encodes the resulting packets.
func parse(stream []byte, piece int) (again []byte, err error) {
	var parser Parser
	for len(stream) > 0 && err == nil {
		n := min(max(piece, 1), len(stream))
		parser.Feed(stream[:n])
		stream = stream[n:]
		for {
			p, ok, bad := parser.Next()
			if err = bad; !ok || err != nil {
				break
			}
			again = p.Append(again)
		}
	}
	return again, err
}

// Bodies decode to values that encode to the same bytes.
func FuzzBody(f *testing.F) {
	f.Add([]byte("r0\x00b12\x00"))
	f.Add([]byte("ENOENT\x00"))
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) > BodyMax {
			return
		}
		parts := Split(body)
		if again := Join(parts...); !bytes.Equal(bytes.TrimSuffix(again, []byte{0}), bytes.TrimSuffix(body, []byte{0})) {
			t.Fatalf("%q becomes %q", body, again)
		}
		if perms, err := ParsePerms(parts); err == nil {
			for i, p := range perms {
				if q, err := ParsePerm(p.String()); err != nil || q != p {
					t.Fatalf("%q is %v", parts[i], p)
				}
			}
		}
		if Errno(Text(body)) == nil {
			t.Fatalf("%q is no error", body)
		}
		if path := Text(body); CheckPath(path) == nil && CheckWatchPath(path) != nil {
			t.Fatalf("%q can't be watched", path)
		}
	})
}
