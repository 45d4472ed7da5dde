package exec

import (
	"testing"

	"pegasus/accel/soft/lane/ir"
)

// Every opcode has an executor, or one that is chosen by the types.
func TestExecutors(t *testing.T) {
	byTypes := map[ir.Op]bool{ir.OpLoad: true, ir.OpStore: true, ir.OpAdd: true}
	for op := ir.OpNone + 1; op < ir.NumOps; op++ {
		if (executors[op] == nil) != byTypes[op] {
			t.Errorf("opcode %d has an executor of its own: %v, want %v", op, executors[op] != nil, !byTypes[op])
		}
	}
}
