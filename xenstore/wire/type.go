package wire

import "fmt"

// Type is a packet's type. A request and its answer have the same.
type Type uint32

// The types of xs_wire.h. RESTRICT (20) has been removed.
const (
	Control Type = iota
	Directory
	Read
	GetPerms
	Watch
	Unwatch
	TransactionStart
	TransactionEnd
	Introduce
	Release
	GetDomainPath
	Write
	Mkdir
	Rm
	SetPerms
	WatchEvent // to clients only
	Error      // to clients only
	IsDomainIntroduced
	Resume
	SetTarget
	_
	ResetWatches
	DirectoryPart
	GetFeature // this and the rest since Xen 4.22
	SetFeature
	GetQuota
	SetQuota

	// Invalid will never be a type.
	Invalid Type = 0xffff
)

var typeNames = map[Type]string{
	Control:            "CONTROL",
	Directory:          "DIRECTORY",
	Read:               "READ",
	GetPerms:           "GET_PERMS",
	Watch:              "WATCH",
	Unwatch:            "UNWATCH",
	TransactionStart:   "TRANSACTION_START",
	TransactionEnd:     "TRANSACTION_END",
	Introduce:          "INTRODUCE",
	Release:            "RELEASE",
	GetDomainPath:      "GET_DOMAIN_PATH",
	Write:              "WRITE",
	Mkdir:              "MKDIR",
	Rm:                 "RM",
	SetPerms:           "SET_PERMS",
	WatchEvent:         "WATCH_EVENT",
	Error:              "ERROR",
	IsDomainIntroduced: "IS_DOMAIN_INTRODUCED",
	Resume:             "RESUME",
	SetTarget:          "SET_TARGET",
	ResetWatches:       "RESET_WATCHES",
	DirectoryPart:      "DIRECTORY_PART",
	GetFeature:         "GET_FEATURE",
	SetFeature:         "SET_FEATURE",
	GetQuota:           "GET_QUOTA",
	SetQuota:           "SET_QUOTA",
}

// String returns the name used in Xen's documents.
func (t Type) String() string {
	if name, ok := typeNames[t]; ok {
		return name
	}
	return fmt.Sprintf("type %d", uint32(t))
}
