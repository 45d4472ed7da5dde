package cuda

import "fmt"

type resultName struct{ name, text string }

// Name returns the result's name in the driver API, or a number for one that the API does not have.
func (r Result) Name() string {
	if n, ok := resultNames[r]; ok {
		return n.name
	}
	return fmt.Sprintf("CUresult(%d)", int32(r))
}

// Text returns a short description of the result.
func (r Result) Text() string {
	if n, ok := resultNames[r]; ok {
		return n.text
	}
	return "unrecognised error code"
}

// String returns Name and Text.
func (r Result) String() string { return r.Name() + ": " + r.Text() }

// Known reports whether the API has the result.
func (r Result) Known() bool {
	_, ok := resultNames[r]
	return ok
}

// Sticky reports whether the result makes a context unusable: every later call in the context returns it.
func (r Result) Sticky() bool {
	switch r {
	case ErrorIllegalAddress, ErrorLaunchTimeout, ErrorAssert, ErrorHardwareStackError, ErrorIllegalInstruction,
		ErrorMisalignedAddress, ErrorInvalidAddressSpace, ErrorInvalidPC, ErrorLaunchFailed, ErrorTensorMemoryLeak,
		ErrorECCUncorrectable, ErrorNvlinkUncorrectable:
		return true
	}
	return false
}
