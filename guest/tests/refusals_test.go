package tests

import "pegasus/cuda"

// refusals answers the operations that this host does not support.
type refusals struct{}

// DomainUsage is for monitoring tools: no program here calls it.
func (refusals) DomainUsage(cuda.Call, cuda.DomainUsageArgs) (out cuda.DomainUsageResult, r cuda.Result) {
	return out, cuda.ErrorNotSupported
}

// TextureHandle is requested of devices that choose handles: this one doesn't.
func (refusals) TextureHandle(cuda.Call, cuda.TextureHandleArgs) (out cuda.TextureHandleResult, r cuda.Result) {
	return out, cuda.ErrorNotSupported
}

// The host cannot share device memory.

func (refusals) SegmentGet(cuda.Call, cuda.SegmentGetArgs) (out cuda.SegmentGetResult, r cuda.Result) {
	return out, cuda.ErrorNotSupported
}

func (refusals) SegmentAttach(cuda.Call, cuda.SegmentAttachArgs) (out cuda.SegmentAttachResult, r cuda.Result) {
	return out, cuda.ErrorNotSupported
}

func (refusals) SegmentDetach(cuda.Call, cuda.SegmentDetachArgs) cuda.Result {
	return cuda.ErrorNotSupported
}

func (refusals) SegmentControl(cuda.Call, cuda.SegmentControlArgs) (out cuda.SegmentControlResult, r cuda.Result) {
	return out, cuda.ErrorNotSupported
}

// It supports neither mappings nor memory waits.

func (refusals) StreamValue(cuda.Call, cuda.StreamValueArgs) cuda.Result {
	return cuda.ErrorNotSupported
}

func (refusals) RangeReserve(cuda.Call, cuda.RangeReserveArgs) (out cuda.RangeReserveResult, r cuda.Result) {
	return out, cuda.ErrorNotSupported
}

func (refusals) RangeFree(cuda.Call, cuda.RangeFreeArgs) cuda.Result { return cuda.ErrorNotSupported }

func (refusals) MemoryCreate(cuda.Call, cuda.MemoryCreateArgs) cuda.Result {
	return cuda.ErrorNotSupported
}

func (refusals) MemoryRelease(cuda.Call, cuda.MemoryReleaseArgs) cuda.Result {
	return cuda.ErrorNotSupported
}
func (refusals) MemoryMap(cuda.Call, cuda.MemoryMapArgs) cuda.Result { return cuda.ErrorNotSupported }

func (refusals) MemoryUnmap(cuda.Call, cuda.MemoryUnmapArgs) cuda.Result {
	return cuda.ErrorNotSupported
}

func (refusals) MemoryAccess(cuda.Call, cuda.MemoryAccessArgs) cuda.Result {
	return cuda.ErrorNotSupported
}

func (refusals) MemoryExport(cuda.Call, cuda.MemoryExportArgs) (out cuda.MemoryExportResult, r cuda.Result) {
	return out, cuda.ErrorNotSupported
}

func (refusals) MemoryImport(cuda.Call, cuda.MemoryImportArgs) (out cuda.MemoryImportResult, r cuda.Result) {
	return out, cuda.ErrorNotSupported
}

func (refusals) MemLend(cuda.Call, cuda.MemLendArgs) (out cuda.MemLendResult, r cuda.Result) {
	return out, cuda.ErrorNotSupported
}

func (refusals) Check(cuda.Call, cuda.CheckArgs) cuda.Result { return cuda.ErrorNotSupported }

func (refusals) TensorMap(cuda.Call, cuda.TensorMapArgs) (out cuda.TensorMapResult, r cuda.Result) {
	return out, cuda.ErrorNotSupported
}

func (refusals) MemBorrow(cuda.Call, cuda.MemBorrowArgs) (out cuda.MemBorrowResult, r cuda.Result) {
	return out, cuda.ErrorNotSupported
}
