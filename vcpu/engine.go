package vcpu

// Engine is a kind of engine of an accelerator. The time for which a domain's work holds engines is counted for each
// kind.
type Engine uint8

const (
	ComputeEngine    Engine = iota
	CopyInEngine            // host to device
	CopyOutEngine           // device to host
	CopyDeviceEngine        // device to device, and fills; the cores of the compute engine may execute these
	NumEngines
)

// EngineClass is a set of engines that a lease opens together.
type EngineClass uint8

const (
	AnyClass     EngineClass = iota // all engines
	ComputeClass                    // ComputeEngine and CopyDeviceEngine
	CopyClass                       // CopyInEngine and CopyOutEngine
	NumClasses
)

// Class returns the class that an engine belongs to.
func (e Engine) Class() EngineClass {
	if e == CopyInEngine || e == CopyOutEngine {
		return CopyClass
	}
	return ComputeClass
}
