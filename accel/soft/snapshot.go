package soft

import (
	"crypto/sha256"
	"fmt"

	"pegasus/cuda"
)

const (
	// DriverVersion is the CUDA version that the device implements.
	DriverVersion = 12040

	capabilityMajor, capabilityMinor = 7, 5
)

// Snapshot describes the device to the guest.
func (d *Device) Snapshot() cuda.Device {
	s := Describe(d.config.Name, d.config.Cores, d.size, d.config.ArenaBase != 0)
	if d.residence != nil { // see Lend
		s.Attributes[cuda.AttributeIPCEventSupported] = 0
	}
	return s
}

// Describe returns the description of an accelerator with that name, cores and memory; mapped means that kernels can
// use host memory at the guest's addresses.
func Describe(name string, cores int, memory uint64, mapped bool) cuda.Device {
	sum := sha256.Sum256([]byte("pegasus software accelerator " + name))
	dev := cuda.Device{TotalMem: memory, Attributes: attributes(cores, mapped)}
	dev.Name = fmt.Sprintf("Pegasus Software Accelerator (%d cores)", cores)
	if cores == 1 {
		dev.Name = "Pegasus Software Accelerator (1 core)"
	}
	copy(dev.UUID[:], sum[:16])
	dev.UUID[6] = dev.UUID[6]&0x0f | 0x80 // a custom UUID: version 8, RFC 9562 §5.8
	dev.UUID[8] = dev.UUID[8]&0x3f | 0x80
	domain, bus, slot := uint16(sum[16])<<8|uint16(sum[17]), sum[18], sum[19]&0x1f
	dev.PCIBusID = fmt.Sprintf("%04x:%02x:%02x.0", domain, bus, slot)
	dev.Attributes[cuda.AttributePCIDomainID] = int32(domain)
	dev.Attributes[cuda.AttributePCIBusID] = int32(bus)
	dev.Attributes[cuda.AttributePCIDeviceID] = int32(slot)
	return dev
}

// attributes returns the values of all attributes; those not listed are 0: absent.
func attributes(cores int, mapped bool) (a [cuda.NumAttributes]int32) {
	a = [cuda.NumAttributes]int32{
		cuda.AttributeMaxThreadsPerBlock:        maxBlockThreads,
		cuda.AttributeMaxBlockDimX:              maxBlockX,
		cuda.AttributeMaxBlockDimY:              maxBlockX,
		cuda.AttributeMaxBlockDimZ:              maxBlockZ,
		cuda.AttributeMaxGridDimX:               maxGridX,
		cuda.AttributeMaxGridDimY:               maxGridYZ,
		cuda.AttributeMaxGridDimZ:               maxGridYZ,
		cuda.AttributeMaxSharedMemoryPerBlock:   maxShared,
		cuda.AttributeTotalConstantMemory:       64 << 10,
		cuda.AttributeWarpSize:                  32,
		cuda.AttributeMaxPitch:                  1<<31 - 1,
		cuda.AttributeMaxRegistersPerBlock:      registerFile,
		cuda.AttributeClockRate:                 1_000_000, // kHz
		cuda.AttributeTextureAlignment:          textureAlign,
		cuda.AttributeGPUOverlap:                1,
		cuda.AttributeMultiprocessorCount:       int32(cores),
		cuda.AttributeKernelExecTimeout:         1,
		cuda.AttributeCanMapHostMemory:          bit(mapped),
		cuda.AttributeSurfaceAlignment:          textureAlign,
		cuda.AttributeConcurrentKernels:         bit(cores > 1),
		cuda.AttributeMemoryClockRate:           1_000_000, // kHz
		cuda.AttributeGlobalMemoryBusWidth:      128,
		cuda.AttributeL2CacheSize:               1 << 20,
		cuda.AttributeAsyncEngineCount:          2,
		cuda.AttributeManagedMemory:             bit(mapped), // in the arena
		cuda.AttributeUnifiedAddressing:         bit(mapped),
		cuda.AttributeTexturePitchAlignment:     32,
		cuda.AttributeComputeCapabilityMajor:    capabilityMajor,
		cuda.AttributeComputeCapabilityMinor:    capabilityMinor,
		cuda.AttributeStreamPrioritiesSupported: 1,
		cuda.AttributeGlobalL1CacheSupported:    1,
		cuda.AttributeLocalL1CacheSupported:     1,

		cuda.AttributeMaximumTexture1dWidth:          maxArrayWidth,
		cuda.AttributeMaximumTexture2dWidth:          maxArrayWidth,
		cuda.AttributeMaximumTexture2dHeight:         maxArrayHeight,
		cuda.AttributeMaximumTexture3dWidth:          maxArrayDepth,
		cuda.AttributeMaximumTexture3dHeight:         maxArrayDepth,
		cuda.AttributeMaximumTexture3dDepth:          maxArrayDepth,
		cuda.AttributeMaximumTexture3dWidthAlternate: 8192, cuda.AttributeMaximumTexture3dHeightAlternate: 8192,
		cuda.AttributeMaximumTexture3dDepthAlternate: 32768,
		cuda.AttributeMaximumTexture1dLayeredWidth:   32768,
		cuda.AttributeMaximumTexture1dLayeredLayers:  2048,
		cuda.AttributeMaximumTexture2dLayeredWidth:   32768,
		cuda.AttributeMaximumTexture2dLayeredHeight:  32768,
		cuda.AttributeMaximumTexture2dLayeredLayers:  2048,
		cuda.AttributeMaximumTexture1dLinearWidth:    1 << 27,
		cuda.AttributeMaximumTexture2dLinearWidth:    maxArrayWidth,
		cuda.AttributeMaximumTexture2dLinearHeight:   65000,
		cuda.AttributeMaximumTexture2dLinearPitch:    1<<21 - 32,
		cuda.AttributeMaximumTexture2dGatherWidth:    32768, cuda.AttributeMaximumTexture2dGatherHeight: 32768,
		cuda.AttributeMaximumTexturecubemapWidth:             32768,
		cuda.AttributeMaximumTexturecubemapLayeredWidth:      32768,
		cuda.AttributeMaximumTexturecubemapLayeredLayers:     2046,
		cuda.AttributeMaximumSurface1dWidth:                  maxArrayWidth,
		cuda.AttributeMaximumSurface2dWidth:                  maxArrayWidth,
		cuda.AttributeMaximumSurface2dHeight:                 maxArrayHeight,
		cuda.AttributeMaximumSurface3dWidth:                  maxArrayDepth,
		cuda.AttributeMaximumSurface3dHeight:                 maxArrayDepth,
		cuda.AttributeMaximumSurface3dDepth:                  maxArrayDepth,
		cuda.AttributeMaximumSurface1dLayeredWidth:           32768,
		cuda.AttributeMaximumSurface1dLayeredLayers:          2048,
		cuda.AttributeMaximumSurface2dLayeredWidth:           32768,
		cuda.AttributeMaximumSurface2dLayeredHeight:          32768,
		cuda.AttributeMaximumSurface2dLayeredLayers:          2048,
		cuda.AttributeMaximumSurfacecubemapWidth:             32768,
		cuda.AttributeMaximumSurfacecubemapLayeredWidth:      32768,
		cuda.AttributeMaximumSurfacecubemapLayeredLayers:     2046,
		cuda.AttributeMaxThreadsPerMultiprocessor:            maxBlockThreads,
		cuda.AttributeMaxSharedMemoryPerMultiprocessor:       maxSharedOptin,
		cuda.AttributeMaxRegistersPerMultiprocessor:          registerFile,
		cuda.AttributeMaxSharedMemoryPerBlockOptin:           maxSharedOptin,
		cuda.AttributeMaxBlocksPerMultiprocessor:             16,
		cuda.AttributeSingleToDoublePrecisionPerfRatio:       2,
		cuda.AttributeCooperativeLaunch:                      1,
		cuda.AttributeVirtualMemoryManagementSupported:       1,
		cuda.AttributeHandleTypePOSIXFileDescriptorSupported: 1,
		cuda.AttributeCanUseStreamMemOpsV1:                   1,
		cuda.AttributeCanUse64BitStreamMemOpsV1:              1,
		cuda.AttributeCanUseStreamWaitValueNorV1:             1,
		cuda.AttributeCanUse64BitStreamMemOps:                1,
		cuda.AttributeCanUseStreamWaitValueNor:               1,
		cuda.AttributeHostNativeAtomicSupported:              bit(mapped),
		cuda.AttributeIPCEventSupported:                      1,
		cuda.AttributeNUMAID:                                 -1,
		cuda.AttributeHostNUMAID:                             -1,
	}
	return a
}

func bit(b bool) int32 {
	if b {
		return 1
	}
	return 0
}
