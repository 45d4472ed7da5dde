package control

import (
	"bufio"
	"bytes"
	"encoding/json"
	"testing"
)

// FuzzRequests decodes arbitrary input line by line: every line is a request of this version or has an error that can
// be sent back.
func FuzzRequests(f *testing.F) {
	f.Add([]byte(`{"v":1,"id":7,"method":"set","params":{"domain":"web","settings":{"credits":"512"}}}` + "\n"))
	f.Add([]byte(`{"v":1,"id":8,"method":"hold","params":{"domain":"web","credits":3}}` + "\n" + `{"v":2}` + "\n"))
	f.Add([]byte(`{"v":1,"id":9,"method":"create","params":{"domain":"web","settings":{"memory":"1GiB"},"holder":"pod-1","expires_ns":60000000000}}` + "\n"))
	f.Add([]byte(`{"v":1,"id":10,"method":"remove","params":{"domain":"web","mode":"end"}}` + "\n" + `{"v":1,"id":11,"method":"renew","params":{"expires_ns":-1}}` + "\n"))
	f.Add([]byte(`{"v":1,"id":1e99,"method":"status","params":[[[[` + "\n\n" + `{"v":1}{}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bufio.NewReaderSize(bytes.NewReader(in), 16)
		for {
			line, err := readLine(r, MaxRequest)
			if err != nil {
				return
			}
			q, bad := DecodeRequest(line)
			if bad == nil && q.Version != Version {
				t.Fatalf("%q was taken for a request", line)
			}
			if bad != nil && (bad.Code == "" || bad.Message == "") {
				t.Fatalf("%q: an error without words", line)
			}
			for _, params := range []any{new(SetParams), new(PolicyParams), new(DomainParams), new(HoldParams), new(ShutdownParams),
				new(CreateParams), new(LeaseParams), new(RemoveParams)} {
				q.Decode(params)
			}
			if _, err := json.Marshal(Answer{Version: Version, ID: q.ID, Error: bad}); err != nil {
				t.Fatalf("%q can't be answered: %v", line, err)
			}
		}
	})
}
