package callbuf

import (
	"bytes"
	"fmt"
)

// The rendezvous of a process guest: four messages, before the segment takes over. Hello and Welcome pass
// over the domain's socket; Map and Mapped over the worker's. After that the worker's socket carries no data;
// its hang-up signals each side's death to the other.
const (
	helloMagic   = 0x4c45_4850 // "PHEL"
	welcomeMagic = 0x4c45_5750 // "PWEL"
	mapMagic     = 0x5041_4d50 // "PMAP"
	mappedMagic  = 0x4450_4d50 // "PMPD"

	HelloBytes = 32
	// WelcomeBytes is the size of a Welcome; with HelloPlaced it has 8 bytes more.
	WelcomeBytes = 240
	// MaxWelcomeBytes is the size of the longest Welcome.
	MaxWelcomeBytes = WelcomeBytes + 8
	MapBytes        = 16
	MappedBytes     = 16
	// WelcomeFDs is the number of descriptors that come with a good Welcome:
	// the segment, and the socket to the worker.
	WelcomeFDs = 2

	// NoWindow as an index means that no candidate base fitted.
	NoWindow = 0xffff_ffff
	// NumBases is the number of candidates for each window.
	NumBases = 4

	// DeviceSliceBytes is the part of the device window that one worker owns.
	DeviceSliceBytes = 64 << 30
	// WideSliceBytes is the size of a worker's device window for programs that may need more addresses than a
	// slice: it extends into the next slices, which belong to other processes' own address spaces.
	WideSliceBytes = 4 << 40
	// MaxDeviceSlices bounds the workers of a host that have device windows.
	MaxDeviceSlices = 512
)

// ArenaBases are the candidate addresses of an arena, at the same address in guest and worker. Address and
// thread sanitizers each exclude some; none excludes all.
var ArenaBases = [NumBases]uint64{0x2000_0000_0000, 0x0040_0000_0000, 0x7eb0_0000_0000, 0x6000_0000_0000}

// deviceBases are the candidate addresses of device windows, before a worker's slice is added.
var deviceBases = [NumBases]uint64{0x3000_0000_0000, 0x0100_0000_0000, 0x5800_0000_0000, 0x2100_0000_0000}

// DeviceBases returns the candidates for the device window of the worker that owns a slice.
func DeviceBases(slice int) (b [NumBases]uint64) {
	for i := range b {
		b[i] = deviceBases[i] + uint64(slice)*DeviceSliceBytes
	}
	return b
}

// Features of a Hello from a process of a virtual machine to its agent.
const (
	// HelloBack: the process has a worker, assigned by an earlier agent. This connection replaces the one to
	// the worker. The answer is a Welcome only if the worker has ended.
	HelloBack = 1 << 32
	// HelloAfresh: the process has not taken the worker that an earlier agent assigned to it.
	HelloAfresh = 1 << 33
	// HelloPlaced: the process supports segments that begin at an offset of their file. A Welcome with the
	// same feature is of such a segment, and contains the offset.
	HelloPlaced = 1 << 34
)

// Hello opens the rendezvous. The guest is identified by the socket, not by the message.
type Hello struct {
	Version  uint32
	Features uint64
	// MostBytes is the largest arena that there is memory for on the guest's side; 0: not specified.
	MostBytes uint64
}

// Welcome is the daemon's answer. With Result 0, two descriptors come with it.
type Welcome struct {
	Version      uint32
	Result       int32 // CUresult
	WorkerPID    uint32
	Features     uint64
	Generation   uint64
	SegmentBytes uint64
	ArenaBases   [NumBases]uint64
	DeviceBases  [NumBases]uint64
	DeviceBytes  uint64
	Message      string // the reason, if Result is not 0; cut at 128 bytes
	// SegmentOffset is the offset of the segment in its file: 0, except with HelloPlaced.
	SegmentOffset uint64
}

// MapRequest gives the candidates of each window that the guest could map.
type MapRequest struct{ Arena, Device uint32 }

// MapReply reports whether the worker could map the same candidates.
type MapReply struct {
	Result         int32
	ArenaOK, DevOK bool
}

func messageError(what string, b []byte, want int) error {
	return fmt.Errorf("%s of %d bytes: want %d bytes with its magic", what, len(b), want)
}

// Append encodes h after b.
func (h Hello) Append(b []byte) []byte {
	b = le.AppendUint32(b, helloMagic)
	b = le.AppendUint32(b, h.Version)
	b = le.AppendUint64(b, h.Features)
	b = le.AppendUint64(b, h.MostBytes)
	return le.AppendUint64(b, 0)
}

// ParseHello decodes a Hello.
func ParseHello(b []byte) (Hello, error) {
	if len(b) != HelloBytes || le.Uint32(b) != helloMagic {
		return Hello{}, messageError("hello", b, HelloBytes)
	}
	return Hello{Version: le.Uint32(b[4:]), Features: le.Uint64(b[8:]), MostBytes: le.Uint64(b[16:])}, nil
}

// Append encodes w after b.
func (w Welcome) Append(b []byte) []byte {
	b = le.AppendUint32(b, welcomeMagic)
	b = le.AppendUint32(b, w.Version)
	b = le.AppendUint32(b, uint32(w.Result))
	b = le.AppendUint32(b, w.WorkerPID)
	for _, v := range []uint64{w.Features, w.Generation, w.SegmentBytes} {
		b = le.AppendUint64(b, v)
	}
	for _, v := range w.ArenaBases {
		b = le.AppendUint64(b, v)
	}
	for _, v := range w.DeviceBases {
		b = le.AppendUint64(b, v)
	}
	b = le.AppendUint64(b, w.DeviceBytes)
	var text [128]byte
	copy(text[:len(text)-1], w.Message)
	b = append(b, text[:]...)
	if w.Features&HelloPlaced != 0 {
		b = le.AppendUint64(b, w.SegmentOffset)
	}
	return b
}

// ParseWelcome decodes a Welcome.
func ParseWelcome(b []byte) (Welcome, error) {
	want := WelcomeBytes
	if len(b) >= WelcomeBytes && le.Uint64(b[16:])&HelloPlaced != 0 {
		want = MaxWelcomeBytes
	}
	if len(b) != want || le.Uint32(b) != welcomeMagic {
		return Welcome{}, messageError("welcome", b, want)
	}
	w := Welcome{
		Version: le.Uint32(b[4:]), Result: int32(le.Uint32(b[8:])), WorkerPID: le.Uint32(b[12:]),
		Features: le.Uint64(b[16:]), Generation: le.Uint64(b[24:]), SegmentBytes: le.Uint64(b[32:]),
	}
	for i := range NumBases {
		w.ArenaBases[i] = le.Uint64(b[40+8*i:])
		w.DeviceBases[i] = le.Uint64(b[72+8*i:])
	}
	w.DeviceBytes = le.Uint64(b[104:])
	text, _, _ := bytes.Cut(b[112:240], []byte{0})
	w.Message = string(text)
	if want > WelcomeBytes {
		w.SegmentOffset = le.Uint64(b[240:])
	}
	return w, nil
}

// Append encodes m after b.
func (m MapRequest) Append(b []byte) []byte {
	b = le.AppendUint32(b, mapMagic)
	b = le.AppendUint32(b, m.Arena)
	b = le.AppendUint32(b, m.Device)
	return le.AppendUint32(b, 0)
}

// ParseMap decodes a MapRequest.
func ParseMap(b []byte) (MapRequest, error) {
	if len(b) != MapBytes || le.Uint32(b) != mapMagic {
		return MapRequest{}, messageError("map", b, MapBytes)
	}
	return MapRequest{Arena: le.Uint32(b[4:]), Device: le.Uint32(b[8:])}, nil
}

// Append encodes m after b.
func (m MapReply) Append(b []byte) []byte {
	b = le.AppendUint32(b, mappedMagic)
	b = le.AppendUint32(b, uint32(m.Result))
	b = le.AppendUint32(b, boolWord(m.ArenaOK))
	return le.AppendUint32(b, boolWord(m.DevOK))
}

// ParseMapped decodes a MapReply.
func ParseMapped(b []byte) (MapReply, error) {
	if len(b) != MappedBytes || le.Uint32(b) != mappedMagic {
		return MapReply{}, messageError("mapped", b, MappedBytes)
	}
	return MapReply{Result: int32(le.Uint32(b[4:])), ArenaOK: le.Uint32(b[8:]) != 0, DevOK: le.Uint32(b[12:]) != 0}, nil
}

func boolWord(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}
