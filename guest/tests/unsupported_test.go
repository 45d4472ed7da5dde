package tests

import "pegasus/cuda"

// unsupported answers the calls about abilities that the device of these tests doesn't have.
type unsupported struct{}

// Device memory is not shared.

func (unsupported) SegmentGet(cuda.Call, cuda.SegmentGetArgs) (out cuda.SegmentGetResult, r cuda.Result) {
	return out, cuda.ErrorNotSupported
}

func (unsupported) SegmentAttach(cuda.Call, cuda.SegmentAttachArgs) (out cuda.SegmentAttachResult, r cuda.Result) {
	return out, cuda.ErrorNotSupported
}

func (unsupported) SegmentDetach(cuda.Call, cuda.SegmentDetachArgs) cuda.Result {
	return cuda.ErrorNotSupported
}

func (unsupported) SegmentControl(cuda.Call, cuda.SegmentControlArgs) (out cuda.SegmentControlResult, r cuda.Result) {
	return out, cuda.ErrorNotSupported
}

// There are no mappings and no memory waits.

func (unsupported) StreamValue(cuda.Call, cuda.StreamValueArgs) cuda.Result {
	return cuda.ErrorNotSupported
}

func (unsupported) RangeReserve(cuda.Call, cuda.RangeReserveArgs) (out cuda.RangeReserveResult, r cuda.Result) {
	return out, cuda.ErrorNotSupported
}

func (unsupported) RangeFree(cuda.Call, cuda.RangeFreeArgs) cuda.Result {
	return cuda.ErrorNotSupported
}

func (unsupported) MemoryCreate(cuda.Call, cuda.MemoryCreateArgs) cuda.Result {
	return cuda.ErrorNotSupported
}

func (unsupported) MemoryRelease(cuda.Call, cuda.MemoryReleaseArgs) cuda.Result {
	return cuda.ErrorNotSupported
}

func (unsupported) MemoryMap(cuda.Call, cuda.MemoryMapArgs) cuda.Result {
	return cuda.ErrorNotSupported
}

func (unsupported) MemoryUnmap(cuda.Call, cuda.MemoryUnmapArgs) cuda.Result {
	return cuda.ErrorNotSupported
}

func (unsupported) MemoryAccess(cuda.Call, cuda.MemoryAccessArgs) cuda.Result {
	return cuda.ErrorNotSupported
}

func (unsupported) MemoryExport(cuda.Call, cuda.MemoryExportArgs) (out cuda.MemoryExportResult, r cuda.Result) {
	return out, cuda.ErrorNotSupported
}

func (unsupported) MemoryImport(cuda.Call, cuda.MemoryImportArgs) (out cuda.MemoryImportResult, r cuda.Result) {
	return out, cuda.ErrorNotSupported
}

func (unsupported) MemLend(cuda.Call, cuda.MemLendArgs) (out cuda.MemLendResult, r cuda.Result) {
	return out, cuda.ErrorNotSupported
}

func (unsupported) Check(cuda.Call, cuda.CheckArgs) cuda.Result { return cuda.ErrorNotSupported }

func (unsupported) TensorMap(cuda.Call, cuda.TensorMapArgs) (out cuda.TensorMapResult, r cuda.Result) {
	return out, cuda.ErrorNotSupported
}

func (unsupported) MemBorrow(cuda.Call, cuda.MemBorrowArgs) (out cuda.MemBorrowResult, r cuda.Result) {
	return out, cuda.ErrorNotSupported
}

// DomainUsage is for monitoring tools: no program here calls it.
func (unsupported) DomainUsage(cuda.Call, cuda.DomainUsageArgs) (out cuda.DomainUsageResult, r cuda.Result) {
	return out, cuda.ErrorNotSupported
}

// TextureHandle is requested of devices that choose handles: this one doesn't.
func (unsupported) TextureHandle(cuda.Call, cuda.TextureHandleArgs) (out cuda.TextureHandleResult, r cuda.Result) {
	return out, cuda.ErrorNotSupported
}
