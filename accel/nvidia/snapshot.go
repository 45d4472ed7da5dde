//go:build cgo

package nvidia

import (
	"pegasus/accel/nvidia/driver"
	"pegasus/cuda"
)

// Snapshot describes the device to the guest: as the driver does, except for abilities that a call buffer can't
// transport.
func (d *Device) Snapshot() cuda.Device {
	s := d.about
	if m := d.config.Memory; m != 0 {
		s.TotalMem = min(s.TotalMem, m)
	}
	for a := range s.Attributes {
		if withheld(cuda.DeviceAttribute(a)) {
			s.Attributes[a] = 0
		}
	}
	s.Attributes[cuda.AttributeManagedMemory] = 1      // managed memory lies in the arena
	if d.config.ArenaBase == 0 || len(d.pinned) == 0 { // kernels can't use the guest's host memory by its addresses
		s.Attributes[cuda.AttributeCanMapHostMemory] = 0
		s.Attributes[cuda.AttributeUnifiedAddressing] = 0
		s.Attributes[cuda.AttributeManagedMemory] = 0
	}
	if d.mapper() == nil { // the guest's own mappings need addresses that it keeps free
		s.Attributes[cuda.AttributeVirtualMemoryManagementSupported] = 0
	}
	if d.exporter() != nil {
		s.Attributes[cuda.AttributeHandleTypePOSIXFileDescriptorSupported] = 1
		s.Attributes[cuda.AttributeIPCEventSupported] = 1
	}
	if driver.Has("cuLaunchKernelEx") {
		s.Attributes[cuda.AttributeClusterLaunch] = d.about.Attributes[cuda.AttributeClusterLaunch]
	}
	if driver.Has("cuTensorMapEncodeTiled") {
		s.Attributes[cuda.AttributeTensorMapAccessSupported] = d.about.Attributes[cuda.AttributeTensorMapAccessSupported]
	}
	words := d.words()
	for a, has := range map[cuda.DeviceAttribute]bool{
		cuda.AttributeCanUseStreamMemOpsV1: words.Bits >= 32, cuda.AttributeCanUse64BitStreamMemOpsV1: words.Bits == 64, cuda.AttributeCanUseStreamWaitValueNorV1: words.Nor,
		cuda.AttributeCanUse64BitStreamMemOps: words.Bits == 64, cuda.AttributeCanUseStreamWaitValueNor: words.Nor,
	} {
		s.Attributes[a] = 0
		if has {
			s.Attributes[a] = 1
		}
	}
	if d.config.KernelTimeout > 0 {
		s.Attributes[cuda.AttributeKernelExecTimeout] = 1
	}
	return s
}

// lastTold is the newest attribute that is reported: programs run correctly with those up to it.
const lastTold = cuda.AttributeReservedSharedMemoryPerBlock

// withheld reports whether an attribute reads 0: abilities that need untransported calls, and attributes after
// lastTold.
func withheld(a cuda.DeviceAttribute) bool {
	switch a {
	case cuda.AttributeTCCDriver, cuda.AttributeComputeMode, cuda.AttributeMultiGPUBoard, cuda.AttributeMultiGPUBoardGroupID,
		cuda.AttributeManagedMemory, cuda.AttributePageableMemoryAccess, cuda.AttributeConcurrentManagedAccess,
		cuda.AttributePageableMemoryAccessUsesHostPageTables, cuda.AttributeDirectManagedMemAccessFromHost,
		cuda.AttributeCanUseHostPointerForRegisteredMem, cuda.AttributeHostRegisterSupported,
		cuda.AttributeCooperativeMultiDeviceLaunch,
		cuda.AttributeHandleTypePOSIXFileDescriptorSupported, cuda.AttributeHandleTypeWin32HandleSupported,
		cuda.AttributeHandleTypeWin32KmtHandleSupported, cuda.AttributeGenericCompressionSupported,
		cuda.AttributeMaxPersistingL2CacheSize, cuda.AttributeMaxAccessPolicyWindowSize, cuda.AttributeGPUDirectRDMAWithCudaVMMSupported,
		cuda.AttributeCanFlushRemoteWrites:
		return true
	}
	return a > lastTold && a != cuda.AttributeNUMAID && a != cuda.AttributeHostNUMAID
}
