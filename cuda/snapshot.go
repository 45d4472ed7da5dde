package cuda

import (
	"bytes"
	"encoding/binary"
)

// DeviceSnapshot is the answers to all of a guest's queries about devices. OpDeviceInfo writes it into the
// arena:
//
//	u32 version, deviceCount, driverVersion, attributeCount
//	per device: char name[128], u8 uuid[16], u64 totalMem, char pciBusId[16], i32 attribute[attributeCount]
//
// The attribute of number NoAttribute has the device's quirks.
type DeviceSnapshot struct {
	DriverVersion uint32 // 1000*major + 10*minor
	Devices       []Device
}

const (
	snapshotVersion = 1
	snapshotHeader  = 16
	deviceNameBytes = 128
	pciBusIDBytes   = 16
	deviceRecord    = deviceNameBytes + 16 + 8 + pciBusIDBytes + 4*NumAttributes

	// NoAttribute is an attribute number that CUDA does not use.
	NoAttribute = 0

	// Quirks are properties of a device that guests have to take into account.
	TakesMachineCode = 1 << 0 // it loads cubins
	GivesHandles     = 1 << 1 // it chooses the handles of textures and surfaces: OpTextureHandle returns them

	// MaxDevices is a reader's limit.
	MaxDevices = 256
)

// Append encodes s after b. Strings that are too long are truncated.
func (s *DeviceSnapshot) Append(b []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(b, snapshotVersion)
	b = le.AppendUint32(b, uint32(len(s.Devices)))
	b = le.AppendUint32(b, s.DriverVersion)
	b = le.AppendUint32(b, NumAttributes)
	for i := range s.Devices {
		d := &s.Devices[i]
		b = appendText(b, d.Name, deviceNameBytes)
		b = append(b, d.UUID[:]...)
		b = le.AppendUint64(b, d.TotalMem)
		b = appendText(b, d.PCIBusID, pciBusIDBytes)
		for _, a := range d.Attributes {
			b = le.AppendUint32(b, uint32(a))
		}
	}
	return b
}

// Decode decodes s from b, which may have any content, and reports whether it is a snapshot. The result does
// not alias b.
func (s *DeviceSnapshot) Decode(b []byte) bool {
	le := binary.LittleEndian
	if len(b) < snapshotHeader || le.Uint32(b) != snapshotVersion || le.Uint32(b[12:]) != NumAttributes {
		return false
	}
	n := le.Uint32(b[4:])
	if n > MaxDevices || len(b) != snapshotHeader+int(n)*deviceRecord {
		return false
	}
	s.DriverVersion = le.Uint32(b[8:])
	s.Devices = make([]Device, n)
	b = b[snapshotHeader:]
	for i := range s.Devices {
		s.Devices[i].decode(b[i*deviceRecord : (i+1)*deviceRecord])
	}
	return true
}

func (d *Device) decode(b []byte) {
	le := binary.LittleEndian
	d.Name, b = text(b[:deviceNameBytes]), b[deviceNameBytes:]
	b = b[copy(d.UUID[:], b):]
	d.TotalMem, b = le.Uint64(b), b[8:]
	d.PCIBusID, b = text(b[:pciBusIDBytes]), b[pciBusIDBytes:]
	for i := range d.Attributes {
		d.Attributes[i] = int32(le.Uint32(b[4*i:]))
	}
}

// appendText appends s and zeros, n bytes in all and at least one zero.
func appendText(b []byte, s string, n int) []byte {
	s = s[:min(len(s), n-1)]
	b = append(b, s...)
	return append(b, make([]byte, n-len(s))...)
}

// text undoes appendText; the last byte ends the text regardless of its value.
func text(b []byte) string {
	s, _, _ := bytes.Cut(b[:len(b)-1], []byte{0})
	return string(s)
}
