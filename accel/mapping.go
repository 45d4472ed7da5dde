package accel

// Access is the permitted access of work to mapped memory (CUmemAccess_flags).
type Access uint32

const (
	NoAccess  Access = 0
	ReadOnly  Access = 1
	ReadWrite Access = 3
)

// Memory is physical memory without an address.
type Memory interface {
	// Release drops the caller's reference, once. The memory is freed when it is mapped nowhere.
	Release()
}
