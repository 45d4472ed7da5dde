// Package hooks has the messages and services of KubeVirt's hook protocol that the hook needs, generated from
// definitions with KubeVirt's names and numbers.
//
// Callers: package kubevirt.
//
// Trust boundary: none; it encodes and decodes.
package hooks

//go:generate sh generate.sh

// Names of the protocol.
const (
	Version        = "v1alpha3"
	OnDefineDomain = "OnDefineDomain" // hook point: a domain is about to be defined
	ShutdownPoint  = "Shutdown"       // hook point: the machine has ended
)
