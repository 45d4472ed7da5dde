package cuda_test

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"pegasus/cuda"
	"pegasus/test/seeds"
)

func exampleSnapshot() cuda.DeviceSnapshot {
	s := cuda.DeviceSnapshot{DriverVersion: 12040, Devices: make([]cuda.Device, 2)}
	for i := range s.Devices {
		d := &s.Devices[i]
		d.Name, d.PCIBusID, d.TotalMem = "Pegasus software accelerator", "0000:00:1f.0", 4<<30
		d.UUID = [16]byte{1, 2, 3, byte(i)}
		for a := range d.Attributes {
			d.Attributes[a] = int32(a*100 - i)
		}
	}
	return s
}

func exampleLayout() cuda.ModuleLayout {
	return cuda.ModuleLayout{
		Functions: []cuda.FunctionLayout{
			{Name: "vectorAdd", ParamBytes: 28, Params: []cuda.ParamLayout{{0, 8}, {8, 8}, {16, 8}, {24, 4}},
				MaxThreads: 1024, Registers: 12, PTXVersion: 75, BinaryVersion: 75, MaxDynamicShared: 48 << 10, Refusal: 218, Required: [3]int32{32, 2, 1}},
			{Name: "nothing", MaxThreads: 256, StaticShared: 1024, ConstBytes: 4, LocalBytes: 8},
			{Name: "byte", ParamBytes: 1, Params: []cuda.ParamLayout{{0, 1}}},
		},
		Globals: []cuda.GlobalLayout{{Name: "table", Address: 0x3000_0000_0200, Size: 256}, {Name: ""}},
	}
}

func TestSnapshotRoundTrip(t *testing.T) {
	want := exampleSnapshot()
	var got cuda.DeviceSnapshot
	if !got.Decode(want.Append(nil)) {
		t.Fatal("refused")
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestSnapshotCutsText(t *testing.T) {
	s := cuda.DeviceSnapshot{Devices: []cuda.Device{{Name: strings.Repeat("n", 200), PCIBusID: strings.Repeat("p", 200)}}}
	var got cuda.DeviceSnapshot
	if !got.Decode(s.Append(nil)) {
		t.Fatal("refused")
	}
	if d := got.Devices[0]; len(d.Name) != 127 || len(d.PCIBusID) != 15 {
		t.Errorf("name of %d bytes, bus id of %d", len(d.Name), len(d.PCIBusID))
	}
}

func TestLayoutRoundTrip(t *testing.T) {
	for name, want := range map[string]cuda.ModuleLayout{
		"some":  exampleLayout(),
		"empty": {Functions: []cuda.FunctionLayout{}, Globals: []cuda.GlobalLayout{}},
	} {
		var got cuda.ModuleLayout
		prefix := []byte("before")
		if !got.Decode(want.Append(prefix)[len(prefix):]) {
			t.Fatalf("%s: refused", name)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
}

func TestBlobsRefuseEveryOtherLength(t *testing.T) {
	s, m := exampleSnapshot(), exampleLayout()
	snapshot, layout := s.Append(nil), m.Append(nil)
	for n := range snapshot {
		if s.Decode(snapshot[:n:n]) {
			t.Errorf("snapshot cut to %d of %d bytes was accepted", n, len(snapshot))
		}
	}
	earlier := 0 // hosts of earlier releases send a layout without the last part
	for n := range layout {
		if !m.Decode(layout[:n:n]) {
			continue
		}
		for _, f := range m.Functions {
			if f.Refusal != 0 || f.Required != [3]int32{} {
				t.Errorf("layout cut to %d of %d bytes was accepted with %+v", n, len(layout), f)
			}
		}
		earlier++
	}
	if earlier != 1 {
		t.Errorf("%d shorter layouts were accepted, want that of earlier releases", earlier)
	}
	if s.Decode(append(snapshot, 0)) || m.Decode(append(layout, 0)) {
		t.Error("a byte too many was accepted")
	}
}

// Damaged layouts are refused or read; a layout that was read encodes to a layout again.
func TestLayoutDamaged(t *testing.T) {
	rng := rand.New(rand.NewPCG(seeds.Fixed(t), 1))
	m := exampleLayout()
	good := m.Append(nil)
	for range 20000 {
		b := append([]byte(nil), good...)
		for range 1 + rng.IntN(3) {
			b[rng.IntN(len(b))] = byte(rng.Uint32())
		}
		checkLayout(t, b)
	}
}

func checkLayout(t *testing.T, b []byte) {
	var m, again cuda.ModuleLayout
	if !m.Decode(b) {
		return
	}
	if !again.Decode(m.Append(nil)) || !reflect.DeepEqual(m, again) {
		t.Fatalf("%x reads as %+v, which encodes to %+v", b, m, again)
	}
}

func FuzzModuleLayout(f *testing.F) {
	m := exampleLayout()
	f.Add(m.Append(nil))
	f.Fuzz(checkLayout)
}

func FuzzDeviceSnapshot(f *testing.F) {
	s := exampleSnapshot()
	f.Add(s.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s, again cuda.DeviceSnapshot
		if s.Decode(b) && (!again.Decode(s.Append(nil)) || !reflect.DeepEqual(s, again)) {
			t.Fatalf("%x reads as %+v, which encodes to %+v", b, s, again)
		}
	})
}
