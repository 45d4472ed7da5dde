package main

import (
	"slices"
	"strings"
)

// goEnum is an enumeration that the host uses by name.
type goEnum struct {
	tag            string // in the facts
	prefix         string // of its enumerators
	goType, goName string // type, and prefix of the constants
	doc            string
}

var goEnumList = []goEnum{
	{"cudaError_enum", "CUDA_", "Result", "", "Results."},
	{"CUdevice_attribute_enum", "CU_DEVICE_ATTRIBUTE_", "DeviceAttribute", "Attribute", "DeviceAttribute is a CUdevice_attribute, an index of Device.Attributes."},
	{"CUfunction_attribute_enum", "CU_FUNC_ATTRIBUTE_", "FunctionAttribute", "FunctionAttribute", "FunctionAttribute is a CUfunction_attribute."},
	{"CUpointer_attribute_enum", "CU_POINTER_ATTRIBUTE_", "PointerAttribute", "PointerAttribute", "PointerAttribute is a CUpointer_attribute."},
	{"CUlimit_enum", "CU_LIMIT_", "Limit", "Limit", "Limit is a CUlimit."},
	{"CUctx_flags_enum", "CU_CTX_", "ContextFlags", "Context", "ContextFlags are CUctx_flags."},
	{"CUstream_flags_enum", "CU_STREAM_", "StreamFlags", "StreamFlag", "StreamFlags are CUstream_flags."},
	{"CUevent_flags_enum", "CU_EVENT_", "EventFlags", "EventFlag", "EventFlags are CUevent_flags."},
	{"CUevent_record_flags_enum", "CU_EVENT_RECORD_", "EventRecordFlags", "EventRecord", "EventRecordFlags are CUevent_record_flags."},
	{"CUmemorytype_enum", "CU_MEMORYTYPE_", "MemoryType", "Memory", "MemoryType is a CUmemorytype."},
	{"CUarray_format_enum", "CU_AD_FORMAT_", "Format", "Format", "Format is a CUarray_format."},
	{"CUresourcetype_enum", "CU_RESOURCE_TYPE_", "ResourceType", "Resource", "ResourceType is a CUresourcetype."},
	{"CUaddress_mode_enum", "CU_TR_ADDRESS_MODE_", "AddressMode", "Address", "AddressMode is a CUaddress_mode."},
	{"CUfilter_mode_enum", "CU_TR_FILTER_MODE_", "FilterMode", "Filter", "FilterMode is a CUfilter_mode."},
	{"CUjit_option_enum", "CU_JIT_", "JITOption", "JIT", "JITOption is a CUjit_option."},
	{"CUcomputemode_enum", "CU_COMPUTEMODE_", "ComputeMode", "ComputeMode", "ComputeMode is a CUcomputemode."},
	{"CUoccupancy_flags_enum", "CU_OCCUPANCY_", "OccupancyFlags", "Occupancy", "OccupancyFlags are CUoccupancy_flags."},
}

// goMacros are macros that the host uses by name.
var goMacros = []struct{ prefix, goName string }{
	{"CU_TRSF_", "Texture"},
	{"CUDA_ARRAY3D_", "Array"},
	{"CU_MEMHOSTALLOC_", "HostAlloc"},
	{"CU_MEMHOSTREGISTER_", "HostRegister"},
}

func emitGoEnums(w *writer, s *spec) {
	w.header("//")
	w.f("\npackage cuda\n\n")
	for _, g := range goEnumList {
		emitGoEnum(w, g, s.Enums[g.tag])
	}
	for _, m := range goMacros {
		w.f("const (\n")
		for _, name := range sortedKeys(s.Defines) {
			if rest, ok := strings.CutPrefix(name, m.prefix); ok {
				w.f("%s%s = %d\n", m.goName, camel(rest), s.Defines[name])
			}
		}
		w.f(")\n\n")
	}
	emitGoResultNames(w, s)
}

func emitGoEnum(w *writer, g goEnum, e *enum) {
	if g.goType == "Result" {
		w.f("// %s\nconst (\n", g.doc)
	} else {
		w.f("// %s\ntype %s int32\n\nconst (\n", g.doc, g.goType)
	}
	seen := map[string]bool{}
	for _, name := range byValue(e.Values) {
		goName := g.goName + camel(strings.TrimPrefix(name, g.prefix))
		if seen[goName] || e.Values[name] > 0x7fffffff {
			continue
		}
		seen[goName] = true
		w.f("%s %s = %d // %s\n", goName, g.goType, e.Values[name], name)
	}
	w.f(")\n\n")
}

// initialisms keep their capitals in Go names.
var initialisms = []string{
	"API", "CDP", "CIG", "DMA", "ECC", "FD", "GPU", "ID", "IO", "IPC", "JIT", "L1", "L2", "LTO", "MPS", "NUMA", "PC", "PCI",
	"PTX", "RDMA", "RPC", "SM", "SRGB", "UUID", "VMM", "SASS", "TCC", "P2P", "D3D12", "NV12",
}

// camel returns the Go name of a C enumerator.
func camel(s string) string {
	var b strings.Builder
	for _, word := range strings.Split(s, "_") {
		switch {
		case word == "":
		case slices.Contains(initialisms, word):
			b.WriteString(word)
		case word == "POSIX":
			b.WriteString("POSIX")
		default:
			b.WriteString(word[:1] + strings.ToLower(word[1:]))
		}
	}
	return b.String()
}

func emitGoResultNames(w *writer, s *spec) {
	e := s.Enums["cudaError_enum"]
	w.f("var resultNames = map[Result]resultName{\n")
	for _, name := range byValue(e.Values) {
		w.f("%d: {%q, %q},\n", e.Values[name], name, s.text(name))
	}
	w.f("}\n")
}
