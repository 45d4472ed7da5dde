package soft

import (
	"pegasus/accel/ptx"
	"pegasus/cuda"
)

// Module is a loaded image. Its functions stay valid while work refers to them.
type Module struct {
	ctx       *Context
	layout    cuda.ModuleLayout
	functions []function
	memory    []uint64 // addresses of its variables' allocations

	references map[uint64]ptx.Opaque // to textures and surfaces, by address
	bound      map[uint64]*Texture   // the textures of the references; never changed, only replaced

	image    uint64 // its number, for the profile
	unloaded bool
}

// function is one kernel of a module.
type function struct {
	number    uint64 // of all that were loaded
	layout    *cuda.FunctionLayout
	required  [3]uint32 // .reqntid, zero if absent
	declared  int32     // how many threads a block may have by .maxntid and .reqntid
	heap      bool      // allocates or frees memory
	tells     bool      // prints or asserts
	code      code
	image     uint64     // number of the module, for the profile
	refusal   *ptx.Error // why it can't be launched, or nil
	explained bool       // the program has received the reason why it can't be compiled
}

// Layout returns the module's layout.
func (m *Module) Layout() *cuda.ModuleLayout { return &m.layout }

// Unload releases the module once the work submitted before has ended.
func (m *Module) Unload() {
	if m.unloaded {
		return
	}
	m.unloaded = true
	for _, addr := range m.memory {
		m.ctx.drop(addr, nil)
	}
}
