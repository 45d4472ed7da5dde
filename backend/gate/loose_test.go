package gate

import (
	"errors"
	"testing"
)

// A loose segment is attached only with its secret, not found by any key or id, and cleared and freed with its last
// attachment.
func TestLooseSegments(t *testing.T) {
	p, workers := segmented(t)
	p.SetQuota(DeviceMemory, 100<<20)
	b := &bank{room: 80 << 20}
	m, other := workers[0], workers[1]
	s, err := m.MakeLoose(b, 64<<20)
	if err != nil || !s.Loose || s.Attached != 1 || s.Key != PrivateKey || b.held != 64<<20 {
		t.Fatalf("%+v, %v; the bank holds %d", s, err, b.held)
	}
	secret, err := m.LooseSecret(s.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.MakeLoose(b, 64<<20); !errors.Is(err, ErrQuota) {
		t.Errorf("more than the quota has: %v", err)
	}
	for _, key := range []uint32{uint32(secret >> 32), uint32(secret)} { // where other segments have their key
		if got, err := other.GetSegment(b, key, 0); err == nil {
			t.Errorf("by a key there is %+v", got)
		}
	}
	if _, err := other.AttachSegment(s.ID); !errors.Is(err, ErrNoSegment) {
		t.Errorf("attached by its id: %v", err)
	}
	if _, err := other.RemoveSegment(b, s.ID); !errors.Is(err, ErrNoSegment) {
		t.Errorf("removed by its id: %v", err)
	}
	if _, err := other.AttachLoose(s.ID, secret+1); !errors.Is(err, ErrNoSegment) {
		t.Errorf("attached by another secret: %v", err)
	}
	if _, err := other.AttachLoose(s.ID+Segments, secret); !errors.Is(err, ErrNoSegment) {
		t.Errorf("attached by another id: %v", err)
	}
	got, err := other.AttachLoose(s.ID, secret)
	if err != nil || got.Offset != s.Offset || got.Bytes != s.Bytes || got.Attached != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	m.DetachSegment(b, s.ID)
	if p.SegmentBytes() != 64<<20 || len(b.cleared) != 0 {
		t.Error("it went while another had it attached")
	}
	other.DetachSegment(b, s.ID)
	if p.SegmentBytes() != 0 || len(b.cleared) != 1 || b.held != 0 {
		t.Errorf("of what nobody has attached there are %d bytes, cleared %d", p.SegmentBytes(), len(b.cleared))
	}
	if _, err := m.AttachLoose(s.ID, secret); !errors.Is(err, ErrNoSegment) {
		t.Errorf("attached when it had gone: %v", err)
	}
	again, err := m.MakeLoose(b, 4<<20)
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := m.LooseSecret(again.ID); n == secret || again.ID == s.ID {
		t.Error("another one has its name")
	}
	p.SetQuota(DeviceMemory, LooseSegments<<21)
	b.room = LooseSegments << 21
	for i := 1; i < LooseSegments; i++ { // the other segments are left to those with keys
		if _, err := other.MakeLoose(b, 1<<20); err != nil {
			t.Fatalf("loose segment %d: %v", i, err)
		}
	}
	if _, err := m.MakeLoose(b, 1<<20); !errors.Is(err, ErrSegments) {
		t.Errorf("one more: %v", err)
	}
	if _, err := m.GetSegment(b, 7, 1<<20); err != nil {
		t.Errorf("one with a key beside them: %v", err)
	}
}
