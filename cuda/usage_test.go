package cuda_test

import (
	"bytes"
	"reflect"
	"testing"

	"pegasus/cuda"
)

func TestDomainUsage(t *testing.T) {
	u := cuda.DomainUsage{MemoryUsed: 3, MemoryQuota: 1 << 40, Now: 5, Busy: 4, Processes: []cuda.ProcessUsage{{7, 8, 9}, {10, 11, 12}}}
	var got cuda.DomainUsage
	if b := u.Append(nil, 1<<12); !got.Decode(b) || !reflect.DeepEqual(got, u) {
		t.Errorf("%+v became %+v", u, got)
	}
	if b := u.Append(nil, 40+24+23); !got.Decode(b) || len(got.Processes) != 1 {
		t.Errorf("room for one process: %+v", got)
	}
	if b := u.Append(nil, 0); !got.Decode(b) || len(got.Processes) != 0 {
		t.Errorf("room for none: %+v", got)
	}
	b := u.Append(nil, 1<<12)
	for n := range b {
		if got.Decode(b[:n]) {
			t.Errorf("%d bytes of %d were taken", n, len(b))
		}
	}
}

func FuzzDomainUsage(f *testing.F) {
	f.Add((&cuda.DomainUsage{Processes: []cuda.ProcessUsage{{1, 2, 3}}}).Append(nil, 1000))
	f.Fuzz(func(t *testing.T, b []byte) {
		var u cuda.DomainUsage
		if u.Decode(b) && !bytes.Equal(u.Append(nil, len(b)), b) {
			t.Errorf("%x was taken and not given back", b)
		}
	})
}
